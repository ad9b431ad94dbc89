"""Prompt prefixes in a folder: a new engine computes them no more, no bit changes, and damage is as good as absence."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_engines import Tiny, bits, tiny

from triform.files.errors import FileError
from triform.generate.api import make_engine
from triform.generate.engine import Engine
from triform.generate.prefix_folder import PrefixFolder
from triform.generate.settings import Request, Settings

pytestmark = pytest.mark.usefixtures("unchecked")
PROMPT = tuple(at % 29 for at in range(90))


def run(model: Tiny, folder: Path | None, **options: Any) -> tuple[list[tuple[int | None, float]], int]:
    """The answer's bits, and how many prompt tokens were prefilled."""
    engine: Engine = make_engine(model, start=0, rows=1, chunk=16, prefix_folder=folder, **options)
    engine.add(Request(prompt=PROMPT, settings=Settings(max_tokens=6)))
    events, count = [], 0
    while engine.busy:
        events += engine.step()
        count += sum(last - first for first, last in engine.prefilled)
    return bits(events), count


@pytest.mark.parametrize("prefix_bytes", [0, 2**20])
def test_a_later_engine_prefills_only_the_rest(tmp_path: Path, prefix_bytes: int) -> None:
    model = tiny("gpt2", torch.float32)
    plain, all_tokens = run(model, None)
    assert run(model, tmp_path / "kv", prefix_bytes=prefix_bytes) == (plain, all_tokens) == (plain, 90)
    assert run(model, tmp_path / "kv", prefix_bytes=prefix_bytes) == (plain, 90 - 80)
    assert (tmp_path / "kv").stat().st_mode & 0o777 == 0o700


def test_another_model_or_precision_finds_nothing(tmp_path: Path) -> None:
    run(tiny("gpt2", torch.float32), tmp_path)
    assert run(tiny("gpt2", torch.float64), tmp_path)[1] == 90
    assert run(tiny("gpt2", torch.float32, seed=2), tmp_path)[1] == 90


def test_a_damaged_file_is_computed_again(tmp_path: Path) -> None:
    model = tiny("gpt2", torch.float32)
    expected, _ = run(model, tmp_path)
    files = sorted(tmp_path.iterdir())
    data = bytearray(files[0].read_bytes())
    data[len(data) // 2] ^= 1
    files[0].write_bytes(data)
    files[1].write_bytes(b"")
    files[2].write_bytes(files[3].read_bytes()[:-40])
    again, count = run(model, tmp_path)
    assert (again, count > 10) == (expected, True)
    assert run(model, tmp_path) == (expected, 10)  # written again


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(bytes(9000))  # not ours
    folder = PrefixFolder(tmp_path, facts="", max_bytes=3000)
    for number in range(9):
        folder.write(bytes([number]), torch.full((200,), float(number)))
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 3000 + 9000
    assert (tmp_path / "model.safetensors").stat().st_size == 9000
    last = folder.read(bytes([8]))
    assert last is not None
    assert last.equal(torch.full((200,), 8.0))
    assert folder.read(bytes([0])) is None


def test_a_disk_that_takes_nothing_stops_no_generation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("gpt2", torch.float32)

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("triform.generate.prefix_folder.write_tensors", fail)
    assert run(model, tmp_path) == run(model, None)
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot write"):
        run(model, tmp_path / "file")


def test_a_network_with_hooks_keeps_out(tmp_path: Path) -> None:
    model = tiny("gpt2", torch.float32)
    assert make_engine(model, rows=1, prefix_folder=tmp_path).prefix_cache.folder is not None
    hook = model.network.register_forward_hook(lambda *_: None)
    try:
        assert make_engine(model, rows=1, prefix_folder=tmp_path).prefix_cache.folder is None
    finally:
        hook.remove()
