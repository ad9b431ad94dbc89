"""From a data file to a finished model folder: rows, base model, splits, training run, evaluation, report."""

__all__ = ["base_model", "evaluation_rows", "memory_forecast", "quantize_model", "run_training", "splits"]
