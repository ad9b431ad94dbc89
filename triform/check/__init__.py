"""Self-checks of a model: batching, padding, packing and caching do not change results, and nothing leaks."""

__all__ = ["page_of_text", "run_checks", "weight_quality"]
