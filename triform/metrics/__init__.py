"""Metrics as the field counts them, each proven against its reference package."""
