"""Text generation: continuous batching, sampling, streaming, beam search. Knows no HTTP, commands or tasks."""

__all__ = ["api", "draft_model", "engine", "events", "model_runner", "sampling", "sequence", "settings", "validate"]
