"""Activations of many texts are those of each text alone, in the order of the texts, in memory and in a file."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from viewed_models import model_of

from triform.errors import InputError, TriformError
from triform.inspect import activations
from triform.inspect.activations import collect_activations
from triform.inspect.activations_file import load_activations
from triform.inspect.changes import read_vectors
from triform.inspect.locations import locate
from triform.inspect.view import look

dice = Random(0)
TEXTS = [[dice.randrange(29) for _ in range(dice.randrange(1, 12))] for _ in range(20)]  # of unequal lengths
TARGETS = [[dice.randrange(29) for _ in range(dice.randrange(1, 12))] for _ in range(20)]


@pytest.mark.parametrize("name", ["gpt2", "bert", "llama", "mistral", "t5", "marian", "classify by a decoder"])
def test_each_row_is_what_the_text_has_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activations, "CHUNK_TEXTS", 7)
    monkeypatch.setattr(activations, "PASS_TOKENS", 40)
    model = model_of(name, torch.float64)
    targets = TARGETS if model.network.sides == 2 else None
    for where in ("L0", "L1H2", "L1.feedforward", "L1H1.k"):
        location = locate(model.network, where)
        found = {
            at: collect_activations(model, TEXTS, where, position=at, targets=targets) for at in (-1, 0, "mean", "all")
        }
        for i in (0, 6, 7, 19):
            view = look(model, TEXTS[i], None if targets is None else targets[i])
            alone = read_vectors(view, location).numpy()
            wanted = {-1: alone[-1], 0: alone[0], "mean": alone.mean(0), "all": alone}
            for at, vectors in wanted.items():
                np.testing.assert_allclose(found[at].of(i), vectors, rtol=0, atol=1e-12)


def test_a_pass_ends_after_the_location() -> None:
    model = model_of("gpt2")
    calls: list[str] = []
    handle = model.network.get_submodule("decoder.blocks.1").register_forward_hook(lambda *_: calls.append("block 1"))
    try:
        collect_activations(model, TEXTS, "L0")
        assert not calls
        collect_activations(model, TEXTS, "L1")
        assert calls
    finally:
        handle.remove()


@pytest.mark.parametrize("position", [-1, "mean", "all"])
def test_a_file_holds_the_same_numbers(position: activations.Pooled, tmp_path: Path) -> None:
    model = model_of("gpt2")
    texts = [TEXTS[0], None, *TEXTS[1:]]
    held = collect_activations(model, texts, "L0", position=position)
    out = tmp_path / "acts.safetensors"
    filed = collect_activations(model, iter(texts), "L0", position=position, out=out)
    np.testing.assert_array_equal(np.asarray(filed), np.asarray(held))
    np.testing.assert_array_equal(load_file(out)["activations"], np.asarray(held))
    again = load_activations(out)
    assert repr(again) == repr(held)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["acts.safetensors"]
    for i in (0, 1, 20):
        np.testing.assert_array_equal(again.of(i), held.of(i))
    assert (np.isnan(held.of(1)).all() and held.of(1).size) if position != "all" else held.of(1).shape == (0, 16)


@pytest.mark.parametrize("position", [-1, "all"])
@pytest.mark.parametrize("cut", [0, 5])
def test_an_interrupted_run_is_continued(
    position: activations.Pooled, cut: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the last row is half written."""
    monkeypatch.setattr(activations, "CHUNK_TEXTS", 6)
    model, out = model_of("gpt2"), tmp_path / "acts.safetensors"

    def interrupted() -> Iterator[list[int]]:
        yield from TEXTS[:14]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        collect_activations(model, interrupted(), "L0", position=position, out=out, about="a")
    part = out.with_name("acts.safetensors.part")
    part.write_bytes(part.read_bytes()[: part.stat().st_size - cut])
    with pytest.raises(TriformError, match="continue with --resume"):
        collect_activations(model, TEXTS, "L0", position=position, out=out, about="a")
    with pytest.raises(TriformError, match="is of another run"):
        collect_activations(model, TEXTS, "L1", position=position, out=out, about="a", resume=True)
    done: list[int] = []
    found = collect_activations(
        model, TEXTS, "L0", position=position, out=out, about="a", resume=True, progress=done.append
    )
    assert done[0] == (12 if not cut else 11)
    assert sum(done) == 20
    np.testing.assert_array_equal(
        np.asarray(found), np.asarray(collect_activations(model, TEXTS, "L0", position=position))
    )


@pytest.mark.parametrize(
    ("where", "position", "message"),
    [
        ("decoder.blocks.0.atention", -1, "did you mean 'decoder.blocks.0.attention'"),
        ("L9", -1, "its layers are 0 to 1"),
        ("L0H9", -1, "its heads are 0 to 3"),
        ("L0@3", -1, "give them as position"),
        ("L0", 3, "text 3 has 2 tokens, so it has no position 3"),
        ("L0", "last", "use a number"),
        ("decoder.angles", -1, "choose another|no vector per token"),
    ],
)
def test_bad_input_is_one_line(where: str, position: activations.Pooled, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        collect_activations(model_of("gpt2"), [[1, 2, 3, 4], [5] * 9, [1, 2]], where, position=position)
    assert "\n" not in str(error.value)


def test_a_text_that_could_not_be_read_takes_its_target_with_it() -> None:
    """Planted mistake: with a target drawn only for texts that are there, the texts behind would get others'."""
    model = model_of("t5", torch.float64)
    whole = np.asarray(collect_activations(model, TEXTS[:4], "L1", targets=TARGETS[:4]))
    found = np.asarray(collect_activations(model, [TEXTS[0], None, *TEXTS[2:4]], "L1", targets=TARGETS[:4]))
    np.testing.assert_allclose(found[[0, 2, 3]], whole[[0, 2, 3]], rtol=0, atol=1e-12)
    with pytest.raises(InputError, match="text 4 has no target; give one target per text"):
        collect_activations(model, TEXTS[:4], "L1", targets=TARGETS[:3])
    with pytest.raises(InputError, match="text 3 has"):
        collect_activations(model_of("gpt2"), [[1] * 9, None, [1, 2]], "L0", position=5)


def test_a_run_that_fails_before_its_first_rows_leaves_nothing(tmp_path: Path) -> None:
    out = tmp_path / "acts.safetensors"
    for _ in range(2):
        with pytest.raises(InputError, match="so it has no position 5"):
            collect_activations(model_of("gpt2"), [[1, 2]], "L0", position=5, out=out)
        assert not [path for path in tmp_path.iterdir() if "part" in path.name]
    assert collect_activations(model_of("gpt2"), [[1, 2]], "L0", out=out).shape == (1, 16)


def test_sources_of_unequal_length_may_have_targets_of_equal_length() -> None:
    """Source and target of a pass are packed alike."""
    model, goals = model_of("vaswani", torch.float64), [[1, 2, 3]] * 4
    together = collect_activations(model, TEXTS[:4], "L1", targets=goals)
    alone = [np.asarray(collect_activations(model, [text], "L1", targets=goals[:1]))[0] for text in TEXTS[:4]]
    np.testing.assert_allclose(np.asarray(together), alone, atol=1e-9)


def test_targets_belong_to_encoder_decoders() -> None:
    with pytest.raises(InputError, match="needs a target for every text"):
        collect_activations(model_of("t5"), TEXTS, "L0")
    with pytest.raises(InputError, match="targets are for encoder-decoders"):
        collect_activations(model_of("gpt2"), TEXTS, "L0", targets=TARGETS)
    assert collect_activations(model_of("t5"), TEXTS, "encoder.L0").shape == (20, 16)
