"""Answers about words: what the model says at a position, and what it writes on."""

from collections.abc import Sequence
from typing import Any

import msgspec

from triform.inspect.residual_stream import angles
from triform.inspect.view import View
from triform.page import requests
from triform.page.apply_change import changed
from triform.page.rounding import listed, within
from triform.page.session import UNCHANGED, Looker, streaming
from triform.spec import Classify, Own, Span, Tag, Tied, Transformed
from triform.weights.label_probabilities import label_probabilities
from triform.weights.regression_head import gives_number, number_of

CANDIDATES = 10


def speaks(looker: Looker) -> bool:
    """The head says words."""
    return isinstance(looker.model.spec.head, Tied | Own | Transformed)


def steps(looker: Looker, asked: requests.Steps) -> dict[str, Any]:
    view = looker.unwritten(asked.run)
    read = len(view.answering.ids)
    room = looker.model.spec.context - read + 1
    with changed(looker.model.network, asked.run.change):
        found = view.steps(
            max(1, min(asked.count, room)), k=min(CANDIDATES, looker.model.spec.vocab), ends=looker.ends()
        )
    return {
        "read": read,
        "tokens": list(found.tokens),
        "steps": [
            {
                "token": step.token,
                "words": list(step.next.axes[0].labels),
                "chances": listed(step.next.values),
                "computed": ranges(step.computed),
                "from_cache": ranges(step.read),
            }
            for step in found.steps
        ],
    }


def ranges(numbers: Sequence[int]) -> list[list[int]]:
    """3, 4, 5, 9 → [3, 6], [9, 10]"""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][1] == number:
            found[-1][1] += 1
        else:
            found.append([number, number + 1])
    return found


def said(looker: Looker, asked: requests.Answer) -> dict[str, Any]:
    need = streaming(list(looker.model.spec.stacks)[-1])
    view = looker.view(asked.run, need=need)
    at = within(asked.position, len(view.answering.ids), "position")
    labels, chances = read_out(looker, view, at)
    found: dict[str, Any] = {"labels": labels, "chances": chances, "score": score(looker, view)}
    found |= {"turned": None, "parted": None, "was": None}
    if asked.run.change == UNCHANGED:
        return found
    was = looker.view(msgspec.structs.replace(asked.run, change=UNCHANGED), need=need)
    ends = (each.record.call(need.until).output[0] for each in (was, view))
    found["turned"] = listed(angles(*ends).cpu().numpy())
    if speaks(looker):
        return found | parted(was, view, at)
    names, before = read_out(looker, was, at)
    return found | {"was": {"words": names, "before": before, "after": chances, "score": score(looker, was)}}


def read_out(looker: Looker, view: View, at: int) -> tuple[list[str], list[float]]:
    """Names and probabilities of what the head says; nothing where it says no names."""
    head, names = looker.model.spec.head, looker.model.labels
    if speaks(looker):
        best = view.likeliest(view.said(at), min(CANDIDATES, looker.model.spec.vocab))
        return list(best.axes[0].labels), listed(best.values)
    if gives_number(looker.model.spec, looker.model.memo):
        return [], []
    if isinstance(head, Classify):
        chances = label_probabilities(view.logits[0], model=looker.model)
        return list(names or map(str, range(head.labels))), listed(chances.cpu().numpy())
    if isinstance(head, Tag):
        return list(names or map(str, range(head.labels))), listed(view.said(at).double().softmax(-1).cpu().numpy())
    if isinstance(head, Span):
        chances = view.logits[0].double().softmax(0)[at]
        return ["an answer begins here", "an answer ends here"], listed(chances.cpu().numpy())
    return [], []


def score(looker: Looker, view: View) -> float | None:
    """What a head with one output answers."""
    model = looker.model
    if not gives_number(model.spec, model.memo):
        return None
    return float(f"{number_of(view.logits[0], model.config):.5g}")


def parted(was: View, now: View, at: int) -> dict[str, Any]:
    """KL(was ‖ now) in nats; and the tokens that were, or are now, among the likeliest, as they ranked before."""
    one, other = (view.said(at).double().log_softmax(-1) for view in (was, now))
    a, b = one.exp(), other.exp()
    k = min(CANDIDATES, len(a))
    ids = dict.fromkeys([*a.topk(k).indices.tolist(), *b.topk(k).indices.tolist()])
    order = sorted(ids, key=lambda id: -float(a[id]))
    words = {
        "words": [now.label(id) for id in order],
        "before": listed(a[order].cpu().numpy()),
        "after": listed(b[order].cpu().numpy()),
    }
    return {"parted": float(f"{max(float((a * (one - other)).sum()), 0.0):.5g}"), "was": words}
