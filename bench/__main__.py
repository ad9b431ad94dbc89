"""Benches by name, all of them without one: `python -m bench forward load generate`. With nothing else running."""

import sys
from importlib import import_module

BENCHES = ("forward", "load", "generate", "train", "shakespeare", "tasks", "look", "busy")

names = sys.argv[1:] or BENCHES
if unknown := [name for name in names if name not in BENCHES]:
    sys.exit(f"unknown bench {', '.join(unknown)}; there are {', '.join(BENCHES)}")
for name in names:
    import_module(f"bench.{name}").main()
