"""Answers about predictions: what the model predicts at a position, and what it generates."""

from collections.abc import Sequence
from typing import Any

import msgspec

from triform.inspect.view import View, degrees_between
from triform.page import requests
from triform.page.rounding import listed, within
from triform.page.session import UNCHANGED, Looker, changed, streaming
from triform.spec import Classify, Own, Span, Tag, Tied, Transformed
from triform.weights.label_heads import gives_number, label_probabilities, number_of

CANDIDATES = 10


def speaks(session: Looker) -> bool:
    """Whether the model has a language-model head."""
    return isinstance(session.model.spec.head, Tied | Own | Transformed)


def steps(session: Looker, request: requests.Steps) -> dict[str, Any]:
    view = session.unwritten(request.run)
    read = len(view.answering.ids)
    count = max(1, min(request.count, session.model.spec.context - read + 1))
    with changed(session.model.network, request.run.change):
        result = view.steps(count, k=min(CANDIDATES, session.model.spec.vocab), ends=session.ends())
    return {
        "read": read,
        "tokens": list(result.tokens),
        "steps": [
            {
                "token": step.token,
                "words": list(step.next.axes[0].labels),
                "chances": listed(step.next.values),
                "computed": ranges(step.computed),
                "from_cache": ranges(step.read),
            }
            for step in result.steps
        ],
    }


def ranges(numbers: Sequence[int]) -> list[list[int]]:
    """3, 4, 5, 9 → [3, 6], [9, 10]"""
    result: list[list[int]] = []
    for number in numbers:
        if result and result[-1][1] == number:
            result[-1][1] += 1
        else:
            result.append([number, number + 1])
    return result


def said(session: Looker, request: requests.Answer) -> dict[str, Any]:
    need = streaming(list(session.model.spec.stacks)[-1])
    view = session.view(request.run, need=need)
    at = within(request.position, len(view.answering.ids), "position")
    labels, chances = read_out(session, view, at)
    result: dict[str, Any] = {"labels": labels, "chances": chances, "score": score(session, view)}
    result |= {"turned": None, "parted": None, "was": None}
    if request.run.change == UNCHANGED:
        return result
    was = session.view(msgspec.structs.replace(request.run, change=UNCHANGED), need=need)
    ends = (one.record.call(need.until).output[0] for one in (was, view))
    result["turned"] = listed(degrees_between(*ends).cpu().numpy())
    if speaks(session):
        return result | parted(was, view, at)
    names, before = read_out(session, was, at)
    return result | {"was": {"words": names, "before": before, "after": chances, "score": score(session, was)}}


def read_out(session: Looker, view: View, at: int) -> tuple[list[str], list[float]]:
    """Labels and probabilities of the prediction; empty for a head without labels."""
    head, names = session.model.spec.head, session.model.labels
    if speaks(session):
        best = view.likeliest(view.said(at), min(CANDIDATES, session.model.spec.vocab))
        return list(best.axes[0].labels), listed(best.values)
    if gives_number(session.model.spec, session.model.memo):
        return [], []
    if isinstance(head, Classify):
        chances = label_probabilities(view.logits[0], model=session.model)
        return list(names or map(str, range(head.labels))), listed(chances.cpu().numpy())
    if isinstance(head, Tag):
        return list(names or map(str, range(head.labels))), listed(view.said(at).double().softmax(-1).cpu().numpy())
    if isinstance(head, Span):
        chances = view.logits[0].double().softmax(0)[at]
        return ["the answer starts here", "the answer ends here"], listed(chances.cpu().numpy())
    return [], []


def score(session: Looker, view: View) -> float | None:
    """The output of a regression head."""
    model = session.model
    if not gives_number(model.spec, model.memo):
        return None
    return float(f"{number_of(view.logits[0], model.config):.5g}")


def parted(was: View, now: View, at: int) -> dict[str, Any]:
    """KL(was ‖ now) in nats, and the likeliest tokens of both, in the order of their probability before."""
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
