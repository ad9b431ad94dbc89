"""Labelled arrays: frozen, labelled through every cut, plain in JSON, inert on every screen."""

import io
import json
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from safetensors import safe_open
from viewed_models import HOSTILE, hostile_tokenizer, model_of, seen

from triform.errors import InputError
from triform.inspect import labelled_array
from triform.inspect.labelled_array import ArrayAxis, LabelledArray
from triform.inspect.view import View, look


def small(*shape: int) -> LabelledArray:
    axes = [ArrayAxis(name, tuple(f"{name}{i}" for i in range(size))) for name, size in zip("abc", shape, strict=False)]
    return LabelledArray.from_tensor(torch.arange(float(np.prod(shape))).reshape(shape), axes, title="numbers")


def hostile_view() -> View:
    model = model_of("gpt2")
    return look(model.replace(tokenizer=hostile_tokenizer()), f"the {HOSTILE} w3")


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


def printed(one: LabelledArray) -> str:
    out = io.StringIO()
    Console(file=out, width=100, force_terminal=True, color_system="truecolor").print(one)
    return out.getvalue()


def results(view: View) -> list[LabelledArray]:
    formula = view.formula(0, 1)
    return [
        *formula,
        view.attention(0),
        view.ledger(0),
        view.shares(0),
        view.angles(),
        view.lens(),
        view.next(),
        view.steps(2).positions(),
        view.contributions(0),
        view.read("decoder.blocks.0.feedforward.f.up"),
    ]


def test_hostile_tokens_are_inert_everywhere() -> None:
    for one in results(hostile_view()):
        page = Tags(one._repr_html_())
        assert page.tags <= {"table", "caption", "tr", "th", "td", "p"}
        assert page.attributes <= {"scope", "title", "style"}
        assert "\u202e" not in one._repr_html_()
        assert "\x1b[31m" not in printed(one)
        assert "\u202e" not in printed(one)
        if len(one.axes) <= 2:
            root = ElementTree.fromstring(one.figure().svg)
            assert not [element for element in root.iter() if element.tag.endswith(("script", "img"))]
    assert HOSTILE in hostile_view().attention(0, 0).axes[0].labels  # the array itself keeps the truth
    assert HOSTILE in json.loads(hostile_view().attention(0, 0).to_json())["axes"][1]["labels"]


def test_the_proof_of_inertness_can_fail() -> None:
    assert "img" in Tags(f"<table><td>{HOSTILE}</td></table>").tags


@given(st.lists(st.text(max_size=6), min_size=1, max_size=4))
def test_any_label_is_inert(names: list[str]) -> None:
    one = LabelledArray.from_tensor(torch.ones(len(names)), [ArrayAxis("token", tuple(names))], title=names[0])
    assert Tags(one._repr_html_()).tags <= {"table", "caption", "tr", "th", "td"}
    ElementTree.fromstring(one.figure().svg)
    assert printed(one).count("\n") >= len(names)


def test_nothing_can_be_changed() -> None:
    source = torch.zeros(2)
    one = LabelledArray.from_tensor(source, [ArrayAxis.numbered("a", 2)], title="t")
    source += 1
    assert one.numpy().tolist() == [0, 0]
    with pytest.raises(ValueError, match="read-only"):
        one.numpy()[0] = 1
    with pytest.raises(AttributeError):
        one.title = "other"  # type: ignore[misc]
    with pytest.raises(ValueError, match="labels of shape"):
        LabelledArray.from_tensor(source, [ArrayAxis.numbered("a", 3)], title="t")


def test_cutting_keeps_the_labels() -> None:
    one = small(2, 3, 4)
    part = one["a1", 1:]
    assert part.title == "numbers, a a1"
    assert [axis.labels for axis in part.axes] == [("b1", "b2"), ("c0", "c1", "c2", "c3")]
    assert np.array_equal(part.numpy(), one.numpy()[1, 1:])
    assert one[0, "b2", -1].numpy() == one.numpy()[0, 2, -1]
    assert np.allclose(one.lengths().numpy(), np.linalg.norm(one.numpy(), axis=-1))
    with pytest.raises(InputError, match=r"a 'a2' is not in this array; it has a0, a1"):
        one["a2"]
    with pytest.raises(InputError, match=r"has 3 axes, but 4 indices"):
        one[0, 0, 0, 0]


def test_json_is_plain_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    masked = seen(model_of("gpt2")).formula(0, 0).masked
    said = json.loads(masked.to_json())
    assert said["values"][0][1] is None  # −inf
    assert said["values"][1][0] == pytest.approx(float(masked.numpy()[1, 0]))
    assert said["axes"][0]["name"] == "query"
    assert said["error"] < 1e-6
    monkeypatch.setattr(labelled_array, "MAX_ARRAY_NUMBERS", 5)
    with pytest.raises(InputError, match=r"6 numbers exceed the limit of 5; select a part"):
        small(2, 3).to_json()


def test_saved_and_read_again(tmp_path: Path) -> None:
    view = hostile_view()
    lens = view.lens()
    lens.save(tmp_path / "lens.safetensors")
    with safe_open(tmp_path / "lens.safetensors", "np") as file:
        assert np.array_equal(file.get_tensor("values"), lens.numpy())
        about = file.metadata()
    assert json.loads(about["axes"])[1]["labels"] == ["the", HOSTILE, "w3"]
    assert json.loads(about["words"]) == lens.words.tolist()
    view.save(tmp_path / "view.safetensors")
    with safe_open(tmp_path / "view.safetensors", "pt") as file:
        assert torch.equal(file.get_tensor("logits"), view.logits)
        up = "decoder.blocks.1.feedforward.f.up"
        assert np.array_equal(file.get_tensor(up)[0].numpy(), view.read(up).numpy())
        assert json.loads(file.metadata()["view"])["stacks"]["decoder"]["heads"] == 4


def test_drawings_show_a_window_of_what_is_long() -> None:
    long = small(200, 300)
    assert long._repr_html_().count("<td") == 48 * 48
    assert "the first 48 × 48 of 200 × 300" in long._repr_html_()
    assert "the first 32 × 32 of 200 × 300" in printed(long)
    assert "the first 4 of 20:" in small(20, 2, 2)._repr_html_()
    assert "█" in printed(long)
    with pytest.raises(InputError, match=r"has 3 axes, a heat map has two"):
        small(2, 2, 2).figure()


def test_strength_follows_size_and_colour_the_sign() -> None:
    one = LabelledArray.from_tensor(torch.tensor([[1.0, -2.0], [float("-inf"), 0.0]]), small(2, 2).axes, title="t")
    page = one._repr_html_()
    for ink in ("(11,107,203,0.500)", "(194,65,12,1.000)", "(11,107,203,0.000)"):
        assert ink in page
    assert "−∞" in page
    lens = seen(model_of("gpt2")).lens()
    assert f">{lens.words[0, 0]} " in lens._repr_html_()


def test_a_text_is_read_by_the_models_own_tokenizer() -> None:
    view = hostile_view()
    assert view.texts["decoder"].ids == (0, 1, 3 + 2)
    assert view.attention(0, 0).axes[1].labels == ("the", HOSTILE, "w3")
    reader = model_of("t5").replace(tokenizer=hostile_tokenizer())
    view = look(reader, "w1 w2 <end>", "w3 w4 <end>", start=0)
    assert view.attention(0, 0, kind="cross").axes == (
        ArrayAxis("query", ("the", "w3", "w4")),
        ArrayAxis("key", ("w1", "w2", "<end>")),
    )
    assert look(reader, "w1", start=0).texts["decoder"].ids == (0,)
    with pytest.raises(InputError, match="or start="):
        look(reader, "w1", "w2")
    assert json.loads(view.to_json())["stacks"]["encoder"]["tokens"] == ["w1", "w2", "<end>"]
