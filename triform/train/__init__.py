"""Training: objectives outside the model, one loop for all of them, checkpoints that survive anything."""
