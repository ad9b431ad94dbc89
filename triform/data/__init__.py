"""Rows of text from files: read, checked, shuffled, packed and batched."""
