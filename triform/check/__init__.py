"""Self-checks of a model: batching, padding, packing and caching do not change results, and nothing leaks."""
