"""Released weights, both ways: name tables (one file per family), and reading and writing model folders.

The only package that knows other projects' names. `model_folder.read` and `model_folder.write` are its entry points.
"""

__all__ = [
    "adapters",
    "config_fields",
    "generation_config",
    "gguf",
    "input_importance",
    "label_scores",
    "llama2c",
    "low_rank",
    "model_card",
    "model_folder",
    "model_hash",
    "model_store",
    "pull",
    "sentence_transformers",
    "verify_folder",
]
