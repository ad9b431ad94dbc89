"""From a data file to a finished model folder: rows, base model, splits, training run, evaluation, report."""
