"""Benches by name, all of them without one: `python -m bench forward load generate`. With nothing else running."""

import sys
from importlib import import_module
from itertools import takewhile

BENCHES = ("forward", "load", "generate", "train", "shakespeare", "tasks", "look", "busy", "peers", "encoders")
ON_REQUEST = ("index", "train_processes")  # half an hour and gigabytes on disk; all cores

# What begins with a dash, and all behind it, is for the benches themselves.
names = [*takewhile(lambda argument: not argument.startswith("-"), sys.argv[1:])]
if unknown := [name for name in names if name not in (*BENCHES, *ON_REQUEST)]:
    sys.exit(f"unknown bench {', '.join(unknown)}; there are {', '.join((*BENCHES, *ON_REQUEST))}")
del sys.argv[1 : 1 + len(names)]
for name in names or BENCHES:
    import_module(f"bench.{name}").main()
