"""From a data file to a finished model folder: rows, base model, splits, training run, evaluation, report."""

__all__ = [
    "base_model",
    "evaluation",
    "evaluation_rows",
    "explain_choices",
    "lint_rows",
    "memory_forecast",
    "quantize_model",
    "ray_rows",
    "run_training",
    "search_index",
    "splits",
    "training",
]
