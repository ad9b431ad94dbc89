"""h5_moves.py ROOT: import paths and strings that branch h5 changed; run it where a conflict was resolved to the other side.
Then: ruff check --select I --fix; ruff format. Safe to run twice. Run before rename_symbols.py."""
import re, subprocess, sys
from pathlib import Path
PAIRS = [
    (r"from triform_lectures\.lesson_charts import", "from triform.charts import"),
    (r"from triform\.metrics\.(labels|entities|squad|rouge|ranking) import", "from triform.metrics import"),
    (r"triform\.costs\.compare\b", "triform.costs.measure"),
    (r"triform\.costs\.draw\b", "triform.costs.overview"),
    (r"triform\.inspect\.draw_array\b", "triform.inspect.labelled_array"),
    (r"from triform\.inspect\.residual_stream import angles\b", "from triform.inspect.view import degrees_between"),
    (r"\bMOST_NUMBERS\b", "MAX_ARRAY_NUMBERS"),
    (r'\(taps, "MOST_BYTES"', '(taps, "MAX_RECORDED_BYTES"'),
    (r'\(machine, "SIDES"', '(machine, "MATRIX_SIDES"'), (r'\(machine, "READ"', '(machine, "READ_BYTES"'),
    (r'\(machine, "SECONDS"', '(machine, "SECONDS_PER_LIMIT"'), (r'\(scaling, "SECONDS"', '(scaling, "SECONDS_PER_POINT"'),
    (r'"who sees whom"', '"mask = gradients"'), (r'"NaN harms nobody"', '"NaN does not spread"'),
    (r'"model = lecture"', '"model = reference"'), (r'"same input, same answer"', '"same input, same result"'),
]
root = Path(sys.argv[1])
for name in subprocess.run(["git", "ls-files", "*.py"], cwd=root, capture_output=True, text=True).stdout.split():
    path = root / name
    if not path.exists(): continue
    old = new = path.read_text()
    for a, b in PAIRS: new = re.sub(a, b, new)
    if new != old: path.write_text(new); print(name)
