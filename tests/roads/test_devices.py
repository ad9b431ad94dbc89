"""No road mixes devices: each runs on a pretended GPU, in a process of its own, and answers as the CPU does.

The processes of a team are not among them: nccl needs real ones.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HELPERS = Path(__file__).parents[1] / "helpers"
ROADS = (
    ("forward", 50), ("greedy", 7), ("beams", 7), ("samples", 7), ("change:", 2), ("classify", 2), ("answer", 2),
    ("prompt_lookup", 1), ("logprobs", 1), ("a_draft_model", 1), ("tag", 1), ("embed", 1), ("rerank", 1),
    ("complete", 1), ("translate", 1), ("fill", 1), ("score", 1), ("zero_shot_and_decide", 1), ("muon", 1), ("lora", 1),
    ("recomputed", 1), ("dropout", 1), ("checkpoints", 1), ("gradients", 1), ("activations", 1), ("sweep", 1),
    ("look", 1), ("halves", 2), ("shared", 4),
)  # fmt: skip


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    """What went wrong on each road."""
    environment = os.environ | {"PYTHONPATH": str(HELPERS), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run([sys.executable, HELPERS / "gpu_roads.py"], capture_output=True, text=True, env=environment)
    assert ran.returncode == 0, ran.stderr
    roads: dict[str, str] = json.loads(ran.stdout)
    return roads


@pytest.mark.parametrize(("name", "least"), ROADS)
def test_no_operation_mixes_devices(name: str, least: int, found: dict[str, str]) -> None:
    ran = {road: wrong for road, wrong in found.items() if road.split()[0] == name}
    assert len(ran) >= least
    assert not any(ran.values()), {road: wrong for road, wrong in ran.items() if wrong}


def test_a_planted_mistake_is_noticed(found: dict[str, str]) -> None:
    assert "found at least two devices, gpu:0 and cpu" in found["planted"]
