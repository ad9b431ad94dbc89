"""Tasks that read, with 16-bit weights; and scores that say nothing, which are an error and not an answer."""

import copy
from typing import Any

import pytest
import torch
from tiny_tasks import ALIKE, LABELLED, QUESTIONS, TAGGED, begun

from triform.data.rows import TextRow
from triform.errors import InvalidScores
from triform.model import Model
from triform.precision import check_scores
from triform.tasks import get_task
from triform.tasks.answer_spans import ContextQuestion
from triform.tasks.encoder_batches import says_nothing
from triform.train.validation_loss import mean_loss

ROADS: dict[str, tuple[Any, Any]] = {
    "classify": (LABELLED, "Jack loves Rome."),
    "tag": (TAGGED, "Jack went to Rome."),
    "answer": (QUESTIONS, ContextQuestion("Who went?", "Jack went to Rome.")),
    "embed": (ALIKE, "Jack went to Rome."),
    "fill": ([TextRow(row.text) for row in LABELLED], "Jack went [MASK] Rome."),
}


def answer(task: str, model: Model) -> Any:
    return next(get_task(task).run([ROADS[task][1]], model=model))


@pytest.mark.parametrize("task", ROADS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_losses_and_answers_in_16_bits(task: str, dtype: torch.dtype) -> None:
    """Near those of the same weights in float64: losses are sums in float32."""
    doing, rows = get_task(task), ROADS[task][0]
    model = begun(doing, rows)
    half = model.replace(network=copy.deepcopy(model.network).to(dtype))
    wide = half.replace(network=copy.deepcopy(half.network).double())
    objective = doing.objective(model=model, config=doing.recipe("encoder", fresh=True))
    examples = doing.examples(rows, model=model)
    near, far = (mean_loss(each.network, objective=objective, examples=examples).value for each in (half, wide))
    assert near == pytest.approx(far, rel=0.02)
    assert answer(task, half)


@pytest.mark.parametrize("task", ROADS)
@pytest.mark.parametrize("broken", [0.0, float("nan"), float("inf")])
def test_scores_that_say_nothing_are_no_answer(task: str, broken: float) -> None:
    model = begun(get_task(task), ROADS[task][0])
    assert answer(task, model)
    with torch.no_grad():
        for parameter in model.network.parameters():
            parameter.fill_(broken)
    with pytest.raises(InvalidScores, match="load it in float32"):
        answer(task, model)


def test_two_labels_may_tie_by_chance() -> None:
    assert not says_nothing(torch.tensor([0.5, 0.5]))
    assert not says_nothing(torch.tensor([0.0]))  # a regression
    assert not says_nothing(torch.tensor([0.5, 0.5, 0.25]))
    assert says_nothing(torch.tensor([0.0, 0.0]))
    assert says_nothing(torch.tensor([0.5, 0.5, 0.5]))


@pytest.mark.parametrize("scores", [[1.0, 1.0], [1.0, float("nan")], [1.0, float("-inf")], [1.0, float("inf")]])
def test_scores_over_a_vocabulary(scores: list[float]) -> None:
    check_scores(torch.tensor([[1.0, 2.0], [3.0, 2.0]]))
    check_scores(torch.tensor([[1.0]]))  # a vocabulary of one word has no other choice
    with pytest.raises(InvalidScores):
        check_scores(torch.tensor([[1.0, 2.0], scores]))
