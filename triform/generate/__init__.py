"""From a model to text: sampling, streaming, batches that change while they run, beam search.

Knows networks, tokenizers and nothing of HTTP, commands or tasks. Light to import: torch comes with the files inside.
"""
