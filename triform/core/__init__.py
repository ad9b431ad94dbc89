"""The Transformer as PyTorch modules. Knows nothing of files, text, tasks, logging or other projects' weight names."""

__all__ = [
    "attention",
    "blocks",
    "build",
    "cache",
    "change_weights",
    "feedforward",
    "forms",
    "initial_weights",
    "inputs",
    "masks",
    "norms",
    "output_heads",
    "packed_linear",
    "positions",
    "quantized_network",
    "texts",
]
