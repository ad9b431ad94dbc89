"""Tokenizers: text to ids and back, streaming, training new ones; chat templates. Knows no models, tensors or tasks."""
