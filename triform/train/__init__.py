"""Training: objectives, one loop for all of them, optimizers, checkpoints that resume bit-identically."""
