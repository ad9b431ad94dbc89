"""A classical baseline: words counted without their order, a linear model on them.

scores = x W + b, where x has for each known word 1 if it is in the text, divided by the length of x
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

WORD = re.compile(r"\w+|[^\w\s]")
WORDS = 20_000
STEPS = 100
SHRINK = 3e-5  # of the squared weights, so that rare words are not believed too much


def words_of(text: str) -> list[str]:
    return WORD.findall(text.lower())


class BagOfWords(NamedTuple):
    words: dict[str, int]
    labels: tuple[str, ...]
    several: bool
    weight: Tensor
    bias: Tensor

    def answers(self, texts: Sequence[str]) -> list[tuple[str, ...]]:
        scores = torch.sparse.mm(_counted(texts, self.words), self.weight) + self.bias
        if not self.several:
            return [(self.labels[at],) for at in scores.argmax(-1).tolist()]
        return [tuple(x for x, score in zip(self.labels, row, strict=True) if score > 0) for row in scores.tolist()]


@torch.inference_mode(False)
def learned(texts: Sequence[str], labels: Sequence[tuple[str, ...]]) -> BagOfWords:
    """The same texts always give the same model: it begins with zeros and sees all texts in every step."""
    frequent = Counter(word for text in texts for word in set(words_of(text))).most_common(WORDS)
    words = {word: at for at, (word, _) in enumerate(frequent)}
    names = tuple(sorted({label for each in labels for label in each}))
    several = any(len(each) != 1 for each in labels)
    x = _counted(texts, words)
    right = torch.zeros(len(texts), len(names))
    for row, each in zip(right, labels, strict=True):
        row[[names.index(label) for label in each]] = 1.0
    weight, bias = torch.zeros(len(words), len(names), requires_grad=True), torch.zeros(len(names), requires_grad=True)
    optimizer = torch.optim.Adam([weight, bias], lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        scores = torch.sparse.mm(x, weight) + bias
        loss = F.binary_cross_entropy_with_logits(scores, right) if several else F.cross_entropy(scores, right)
        (loss + SHRINK * weight.square().sum() / len(names)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return BagOfWords(words, names, several, weight.detach(), bias.detach())


def _counted(texts: Sequence[str], words: dict[str, int]) -> Tensor:
    """[texts, words], sparse, each row of length 1"""
    found = [sorted({words[word] for word in words_of(text) if word in words}) for text in texts]
    rows = [row for row, each in enumerate(found) for _ in each]
    columns = [at for each in found for at in each]
    values = [len(each) ** -0.5 for each in found for _ in each]
    return torch.sparse_coo_tensor(
        torch.tensor([rows, columns], dtype=torch.int64).view(2, -1),
        torch.tensor(values),
        (len(texts), len(words)),
        check_invariants=True,
    ).coalesce()
