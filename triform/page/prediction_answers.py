"""Answers about predictions: what the model predicts at a position, and what it generates."""

from collections.abc import Sequence
from typing import Any

import msgspec
import torch
from torch import Tensor

from triform.errors import InputError
from triform.inspect.model_answers import embed_hidden, find_kind
from triform.inspect.view import View, degrees_between
from triform.page import requests
from triform.page.rounding import check_position, round_to_lists
from triform.page.session import UNCHANGED, InspectionSession, stream_modules
from triform.spec import Classify, Own, Span, Tag, Tied, Transformed
from triform.weights.label_scores import compute_label_probabilities, compute_number, gives_number

CANDIDATES = 10


def has_language_head(session: InspectionSession) -> bool:
    """Whether the model has a language-model head."""
    return isinstance(session.model.spec.head, Tied | Own | Transformed)


def answer_steps(session: InspectionSession, request: requests.StepsRequest) -> dict[str, Any]:
    """A greedy continuation, step by step, with the candidates of each step."""
    view = session.view_prompt(request.run)
    read = len(view.predicted_text.ids)
    count = max(1, min(request.count, session.model.spec.context - read + 1))
    with session.apply_change(request.run):
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
    """Words, labels or cosines, before and after a change."""
    need = stream_modules(list(session.model.spec.stacks)[-1])
    view = session.view(request.run, need=need)
    usual = session.view(msgspec.structs.replace(request.run, change=UNCHANGED), need=need)
    dropped = len(usual.predicted_text.ids) - len(view.predicted_text.ids)
    at = check_position(request.position, len(usual.predicted_text.ids), "position")
    if at < dropped:
        raise InputError(f"token {at} is not among the last {request.run.change.context} tokens, which alone are read")
    labels, chances = read_prediction(session, view, at - dropped, request.sampling)
    result: dict[str, Any] = {"labels": labels, "chances": chances, "score": read_score(session, view)}
    result |= {"turned": None, "parted": None, "was": None, "nearest": None}
    if find_kind(session.model) == "vector":
        result["nearest"] = compare_embeddings(session, request, usual, view)
    if request.run.change == UNCHANGED and request.sampling == 1.0:
        return result
    if not dropped:
        ends = (one.record.last_call(need.until).output[0] for one in (usual, view))
        result["turned"] = round_to_lists(degrees_between(*ends).cpu().numpy())
    if has_language_head(session):
        logits = usual.logits_at(at), view.logits_at(at - dropped) / request.sampling
        return result | compare_predictions(view, *logits)
    names, before = read_prediction(session, usual, at)
    return result | {"was": {"words": names, "before": before, "after": chances, "score": read_score(session, usual)}}


def compare_embeddings(
    session: InspectionSession, request: requests.AnswerRequest, usual: View, view: View
) -> dict[str, Any]:
    """Cosines of the text's embedding, before and after, with itself unchanged and with other texts."""
    model, last = session.model, list(session.model.spec.stacks)[-1]

    def embed(one: View) -> Tensor:
        return embed_hidden(model, one.record.last_call(f"{last}.final").output)[0].double()

    need = stream_modules(last)
    others = [session.view(requests.PageRun(text=text), need=need) for text in request.neighbours]
    known = torch.stack([embed(one) for one in (usual, *others)])
    before, after = (torch.cosine_similarity(known, embed(one)[None], dim=1) for one in (usual, view))
    return {
        "texts": list(request.neighbours),
        "before": round_to_lists(before.cpu().numpy()),
        "after": round_to_lists(after.cpu().numpy()),
    }


def read_prediction(
    session: InspectionSession, view: View, at: int, sampling: float = 1.0
) -> tuple[list[str], list[float]]:
    """Labels and probabilities of the prediction; empty for a head without labels."""
    head, names = session.model.spec.head, session.model.labels
    if has_language_head(session):
        best = view.top_tokens(view.logits_at(at) / sampling, min(CANDIDATES, session.model.spec.vocab))
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


def compare_predictions(view: View, was: Tensor, now: Tensor) -> dict[str, Any]:
    """KL(was ‖ now) in nats, and the likeliest tokens of both, in the order of their probability before."""
    one, other = (logits.double().log_softmax(-1) for logits in (was, now))
    a, b = one.exp(), other.exp()
    k = min(CANDIDATES, len(a))
    ids = dict.fromkeys([*a.topk(k).indices.tolist(), *b.topk(k).indices.tolist()])
    order = sorted(ids, key=lambda id: -float(a[id]))
    words = {
        "words": [view.label(id) for id in order],
        "before": round_to_lists(a[order].cpu().numpy()),
        "after": round_to_lists(b[order].cpu().numpy()),
    }
    return {"parted": float(f"{max(float((a * (one - other)).sum()), 0.0):.5g}"), "was": words}
