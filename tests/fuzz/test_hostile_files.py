"""The longer fuzzing run, behind the slow marker: coverage finds what random damage does not."""

import struct
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_models import EVERY

from triform.core.initial_weights import build_network
from triform.model import Model
from triform.text.train_tokenizer import train_tokenizer
from triform.weights.model_folder import write

RUNS = {"config": 20_000, "header": 20_000, "index": 20_000, "tokenizer": 3_000, "template": 300, "gguf": 20_000}


@pytest.mark.slow
@pytest.mark.parametrize("kind", RUNS)
def test_no_file_crashes_us(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("atheris")
    spec = EVERY["gpt2"]
    tokenizer = train_tokenizer(["the fat ginger cat"] * 3, kind="wordpiece", vocab=29)
    shards = {"shard_bytes": 4000} if kind == "index" else {}
    write(tmp_path / "m", model=Model(spec, build_network(spec), tokenizer), **shards)
    (tmp_path / "m" / "manifest.json").unlink()
    seeds = tmp_path / "seeds"
    seeds.mkdir()
    for file in (tmp_path / "m").glob("*.json"):
        (seeds / file.name).write_bytes(file.read_bytes())
    (seeds / "m.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + b"x" * 64)
    script = Path(__file__).with_name("hostile_files.py")
    done = subprocess.run(
        [
            sys.executable,
            str(script),
            kind,
            str(tmp_path / "m"),
            str(seeds),
            f"-runs={RUNS[kind]}",
            "-max_total_time=120",
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-3000:]
