"""Training: objectives, one loop for all of them, optimizers, checkpoints that resume bit-identically."""

__all__ = [
    "examples",
    "head_loss",
    "label_objectives",
    "loop",
    "loss_guard",
    "objectives",
    "optimizers",
    "pair_objectives",
    "prepare_network",
    "process_memory",
    "progress_display",
    "run_config",
    "run_events",
    "run_store",
    "signals",
    "stored_examples",
    "tensorboard",
    "token_objectives",
    "validation_loss",
]
