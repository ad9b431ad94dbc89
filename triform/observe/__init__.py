"""Looking without touching: taps, proofs, and what a model costs before and after it runs."""
