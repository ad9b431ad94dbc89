"""Answers about predictions: what the model predicts at a position, and what it generates."""

from collections.abc import Sequence
from typing import Any

import msgspec

from triform.inspect.view import View, degrees_between
from triform.page import requests
from triform.page.rounding import check_position, round_to_lists
from triform.page.session import UNCHANGED, InspectionSession, apply_change, stream_modules
from triform.spec import Classify, Own, Span, Tag, Tied, Transformed
from triform.weights.label_heads import compute_label_probabilities, compute_number, gives_number

CANDIDATES = 10


def has_language_head(session: InspectionSession) -> bool:
    """Whether the model has a language-model head."""
    return isinstance(session.model.spec.head, Tied | Own | Transformed)


def answer_steps(session: InspectionSession, request: requests.StepsRequest) -> dict[str, Any]:
    """A greedy continuation, step by step, with the candidates of each step."""
    view = session.view_prompt(request.run)
    read = len(view.predicted_text.ids)
    count = max(1, min(request.count, session.model.spec.context - read + 1))
    with apply_change(session.model.network, request.run.change):
        result = view.steps(count, k=min(CANDIDATES, session.model.spec.vocab), ends=session.end_tokens())
    return {
        "read": read,
        "tokens": list(result.tokens),
        "steps": [
            {
                "token": step.token,
                "words": list(step.next.axes[0].labels),
                "chances": round_to_lists(step.next.values),
                "computed": merge_ranges(step.computed),
                "from_cache": merge_ranges(step.read),
            }
            for step in result.steps
        ],
    }


def merge_ranges(numbers: Sequence[int]) -> list[list[int]]:
    """3, 4, 5, 9 → [3, 6], [9, 10]"""
    result: list[list[int]] = []
    for number in numbers:
        if result and result[-1][1] == number:
            result[-1][1] += 1
        else:
            result.append([number, number + 1])
    return result


def answer_prediction(session: InspectionSession, request: requests.AnswerRequest) -> dict[str, Any]:
    """The labels of a classifier with their probabilities, before and after a change."""
    need = stream_modules(list(session.model.spec.stacks)[-1])
    view = session.view(request.run, need=need)
    at = check_position(request.position, len(view.predicted_text.ids), "position")
    labels, chances = read_prediction(session, view, at)
    result: dict[str, Any] = {"labels": labels, "chances": chances, "score": read_score(session, view)}
    result |= {"turned": None, "parted": None, "was": None}
    if request.run.change == UNCHANGED:
        return result
    was = session.view(msgspec.structs.replace(request.run, change=UNCHANGED), need=need)
    ends = (one.record.last_call(need.until).output[0] for one in (was, view))
    result["turned"] = round_to_lists(degrees_between(*ends).cpu().numpy())
    if has_language_head(session):
        return result | compare_predictions(was, view, at)
    names, before = read_prediction(session, was, at)
    return result | {"was": {"words": names, "before": before, "after": chances, "score": read_score(session, was)}}


def read_prediction(session: InspectionSession, view: View, at: int) -> tuple[list[str], list[float]]:
    """Labels and probabilities of the prediction; empty for a head without labels."""
    head, names = session.model.spec.head, session.model.labels
    if has_language_head(session):
        best = view.top_tokens(view.logits_at(at), min(CANDIDATES, session.model.spec.vocab))
        return list(best.axes[0].labels), round_to_lists(best.values)
    if gives_number(session.model.spec, session.model.memo):
        return [], []
    if isinstance(head, Classify):
        chances = compute_label_probabilities(view.logits[0], model=session.model)
        return list(names or map(str, range(head.labels))), round_to_lists(chances.cpu().numpy())
    if isinstance(head, Tag):
        return list(names or map(str, range(head.labels))), round_to_lists(
            view.logits_at(at).double().softmax(-1).cpu().numpy()
        )
    if isinstance(head, Span):
        chances = view.logits[0].double().softmax(0)[at]
        return ["the answer starts here", "the answer ends here"], round_to_lists(chances.cpu().numpy())
    return [], []


def read_score(session: InspectionSession, view: View) -> float | None:
    """The output of a regression head."""
    model = session.model
    if not gives_number(model.spec, model.memo):
        return None
    return float(f"{compute_number(view.logits[0], model.config):.5g}")


def compare_predictions(was: View, now: View, at: int) -> dict[str, Any]:
    """KL(was ‖ now) in nats, and the likeliest tokens of both, in the order of their probability before."""
    one, other = (view.logits_at(at).double().log_softmax(-1) for view in (was, now))
    a, b = one.exp(), other.exp()
    k = min(CANDIDATES, len(a))
    ids = dict.fromkeys([*a.topk(k).indices.tolist(), *b.topk(k).indices.tolist()])
    order = sorted(ids, key=lambda id: -float(a[id]))
    words = {
        "words": [now.label(id) for id in order],
        "before": round_to_lists(a[order].cpu().numpy()),
        "after": round_to_lists(b[order].cpu().numpy()),
    }
    return {"parted": float(f"{max(float((a * (one - other)).sum()), 0.0):.5g}"), "was": words}
