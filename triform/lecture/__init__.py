"""The five lectures as runs: every number, mistake, quiz and experiment on the slides, computed now and checked."""
