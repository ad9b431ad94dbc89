"""Text in, ids out, and back: tokenizers, streaming, training new ones, chat templates.

Knows files of text and nothing of models, tensors or tasks.
"""
