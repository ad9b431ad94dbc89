"""Benches by name, all of them without one: `python -m bench forward load generate`. With nothing else running.

What begins with a dash and all behind it are options of the bench: `python -m bench index --passages 100000`.
"""

import sys
from importlib import import_module

BENCHES = ("forward", "load", "generate", "train", "shakespeare", "tasks", "look", "busy")
ON_REQUEST = ("index",)  # an hour, and gigabytes on disk

options = next((at for at, word in enumerate(sys.argv) if at and word.startswith("-")), len(sys.argv))
names, sys.argv[1:] = sys.argv[1:options] or BENCHES, sys.argv[options:]
if unknown := [name for name in names if name not in (*BENCHES, *ON_REQUEST)]:
    sys.exit(f"unknown bench {', '.join(unknown)}; there are {', '.join((*BENCHES, *ON_REQUEST))}")
for name in names:
    import_module(f"bench.{name}").main()
