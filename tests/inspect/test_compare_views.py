"""Two looks side by side."""

import numpy as np
import pytest
import torch
from viewed_models import SOURCE, model_of, seen

from triform.errors import InputError
from triform.inspect.compare_views import compare, compare_contexts
from triform.inspect.interventions import without_heads
from triform.inspect.view import look


def test_a_run_compared_with_itself_is_the_same() -> None:
    view, again = seen(model_of("t5")), seen(model_of("t5"))
    same = compare(view, again)
    assert not same.stream().numpy().any()
    assert not same.attention(0, kind="cross").numpy().any()
    assert not same.divergence().numpy().any()
    assert np.array_equal(same.next(3).numpy()[:, 0], same.next(3).numpy()[:, 1])


def test_an_intervention_shows_where_it_begins() -> None:
    model = model_of("gpt2", torch.float64)
    plain = seen(model)
    with without_heads(model.network, {(1, 0)}):
        changed = seen(model)
    difference = compare(plain, changed)
    stream = difference.stream()
    assert not stream["block 0"].numpy().any()
    assert (stream["block 1"].numpy() > 0).all()
    assert not difference.attention(1).numpy().any()  # the weights themselves are read before the head is silent
    a, b = (view.logits[0].softmax(-1) for view in (plain, changed))
    assert np.allclose(difference.divergence().numpy(), (a * (a / b).log()).sum(-1))
    best = int(a[-1].argmax())
    assert np.allclose(difference.next(1).numpy(), [[a[-1, best], b[-1, best]]])


def test_a_word_in_two_contexts_begins_the_same_and_parts() -> None:
    model = model_of("bert", torch.float64)
    words = [(look(model, ids), 2) for ids in ([1, 2, 9, 4], [5, 6, 9, 7], [1, 2, 8, 4])]
    turned = compare_contexts(words)
    assert turned.axes[0].labels[0] == "token"
    assert turned["token"].numpy()[0, 1] == 0
    assert turned["token"].numpy()[0, 2] > 1
    assert (turned["block 1"].numpy()[0, 1:] > 1).all()
    assert turned.axes[1].labels == ("0: 9", "1: 9", "2: 8")
    x, y = (view.stream()["block 1", 2].numpy() for view, _ in words[:2])
    cosine = x @ y / np.linalg.norm(x) / np.linalg.norm(y)
    assert np.cos(np.radians(turned["block 1"].numpy()[0, 1])) == pytest.approx(cosine, abs=1e-12)


def test_what_cannot_be_compared_is_said() -> None:
    one, longer = look(model_of("gpt2"), SOURCE), look(model_of("gpt2"), [1, 2, 3])
    with pytest.raises(InputError, match=r"the decoders have 7 and 3 tokens"):
        compare(one, longer)
    with pytest.raises(InputError, match=r"positions are 0 to 2"):
        compare_contexts([(one, 0), (longer, 3)])
    with pytest.raises(InputError, match=r"the head Tag"):
        compare(seen(model_of("tag")), seen(model_of("tag"))).divergence()
