"""`torch.compile` takes each form whole, without a break in the graph, and gives the same answer.

In a process of its own: the run-time checks of shapes that the other tests carry cannot be compiled.
"""

import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import sys, warnings
warnings.simplefilter("ignore")
import torch, triform
from tiny_models import EVERY
from triform.core.texts import Pair, Text

for name in ("bert", "gpt2", "t5"):
    model = triform.build(EVERY[name])
    text = Text.of(torch.tensor([[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]]))
    batch = Pair(text, text) if model.spec.form == "encoder-decoder" else text
    with torch.no_grad():
        compiled = torch.compile(model.network, fullgraph=True, backend=sys.argv[1])
        torch.testing.assert_close(compiled(batch), model.network(batch))
    print(name)
"""


@pytest.mark.parametrize(
    "backend",
    [
        "aot_eager",  # the whole graph, without turning it into C++
        pytest.param("inductor", marks=pytest.mark.slow),
    ],
)
def test_fullgraph(backend: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE, backend],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).resolve().parents[1] / "helpers",
    )
    assert done.stdout.split() == ["bert", "gpt2", "t5"], done.stderr[-2000:]
