"""Rows of text from files: read, checked, shuffled, packed and batched."""

__all__ = [
    "array_store",
    "batches",
    "chunks",
    "column_suggestions",
    "columns",
    "detect_format",
    "document_text",
    "folds",
    "formats",
    "frames",
    "input_paths",
    "line_reader",
    "lint",
    "readers",
    "row_cache",
    "row_sample",
    "rows",
    "shuffle",
    "values",
]
