"""Long and short texts side by side: every piece fits into the model in every epoch, and only a beginning follows an
end."""

from typing import Any

import numpy as np
import pytest
from tiny_tasks import begun

from triform.data.rows import DocumentRow
from triform.tasks.complete import CompleteTask, SeparateTexts
from triform.train.examples import ExamplePlace, Examples, TokenExample, check_examples

CONTEXT = 24
EPOCHS = range(12)
LONG, SHORT = "Jack loves Rome and Rose hates Paris. ", "Rose went to London."


class InEpoch(Examples[TokenExample]):
    """The examples as another epoch draws them."""

    def __init__(self, examples: Examples[TokenExample], epoch: int) -> None:
        self.examples, self.epoch = examples, epoch

    @property
    def lengths(self) -> Any:
        return self.examples.lengths

    @property
    def fingerprint(self) -> str:
        return self.examples.fingerprint

    def at(self, place: ExamplePlace) -> TokenExample:
        return self.examples.at(place._replace(epoch=self.epoch))


@pytest.mark.parametrize("times", [1, 3, 4, 11])
def test_every_piece_fits_in_every_epoch(times: int) -> None:
    rows = [DocumentRow(LONG * times), *[DocumentRow(SHORT)] * 40]
    model = begun(CompleteTask(), rows, form="decoder", context=CONTEXT)
    examples = CompleteTask().examples(rows, model=model)
    assert isinstance(examples, SeparateTexts)
    for epoch in EPOCHS:
        check_examples(InEpoch(examples, epoch), spec=model.spec)


@pytest.mark.parametrize("length", range(1, 60))
def test_only_a_beginning_that_leaves_room_follows_an_end(length: int) -> None:
    """A text of every length around one, two and three contexts."""
    context, end = 20, 1
    ids = np.arange(100, 100 + length)
    examples = SeparateTexts(ids, np.array([0, length]), length=context, before=end)
    drawn = {
        row: [examples.at(ExamplePlace(3, epoch, row)).ids.tolist() for epoch in EPOCHS]
        for row in range(len(examples.lengths))
    }
    assert all(len(each) <= context + 1 for pieces in drawn.values() for each in pieces)
    followed = {row for row, pieces in drawn.items() if any(each[0] == end for each in pieces)}
    assert followed == ({0} if length <= context else set())
    assert {number for pieces in drawn.values() for each in pieces for number in each} - {end} == set(ids.tolist())
