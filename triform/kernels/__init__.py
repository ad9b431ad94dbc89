"""Products with packed matrices, and programs of native operations: fast in C++, and the same slowly in torch."""

__all__ = ["instruction_sets", "library", "move_rows", "operations", "packed_matrix", "quantize", "row_summary"]
