"""Tokenizers: text to ids and back, streaming, training new ones; chat templates. Knows no models, tensors or tasks."""

__all__ = [
    "build_tokenizer",
    "chat_template",
    "languages",
    "response_parser",
    "response_template",
    "sentencepiece",
    "tokenizer",
    "train_tokenizer",
]
