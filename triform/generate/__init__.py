"""Text generation: continuous batching, sampling, streaming, beam search. Knows no HTTP, commands or tasks."""
