"""Looking inside a model while it runs: taps, interventions, and views of what happened."""
