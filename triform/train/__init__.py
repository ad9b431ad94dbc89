"""Training: objectives, one loop for all of them, optimizers, checkpoints that resume bit-identically.

The room may be called: `triform.train("classify", rows, base="minilm", out="models/t")` is the function of
`triform.pipeline.training`, whose reference `help(triform.train.__wrapped__)` prints.
"""

import sys

from triform import CallableRoom

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

sys.modules[__name__].__class__ = CallableRoom
