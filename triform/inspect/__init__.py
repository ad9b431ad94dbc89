"""Looking inside a model while it runs: taps, interventions, and views of what happened."""

__all__ = [
    "ablations",
    "activations",
    "activations_file",
    "attention_view",
    "attribution",
    "compare_models",
    "compare_views",
    "interventions",
    "labelled_array",
    "measures",
    "model_answers",
    "module_paths",
    "paper_figures",
    "parse_changes",
    "patched_model",
    "sweeps",
    "taps",
    "token_labels",
    "view",
]
