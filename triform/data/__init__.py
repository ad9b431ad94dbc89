"""Rows of text from files: read, checked, put in order, packed and batched."""
