"""Fill: the words a masked model would put where a text has none."""

from typing import TYPE_CHECKING

import msgspec
import torch

from triform.errors import InputError, TriformError
from triform.spec import Transformed

if TYPE_CHECKING:
    from triform.model import Model


class Candidate(msgspec.Struct, frozen=True):
    """A token for a mask, and its probability there."""

    token: int
    text: str
    probability: float


class Filled(msgspec.Struct, frozen=True):
    """The likeliest tokens of each mask, and the text with the first of each put in."""

    text: str
    masks: tuple[tuple[Candidate, ...], ...]


def fill(model: "Model", text: str, *, k: int = 5) -> Filled:
    """The k likeliest tokens for each mask of the text, each mask on its own."""
    tokenizer = model.tokenizer
    if not isinstance(model.spec.head, Transformed):
        raise TriformError(
            f"this model ({model.spec.form}, head {type(model.spec.head).__name__}) was not trained to fill masks; "
            "use a masked language model such as BERT"
        )
    if tokenizer is None or tokenizer.mask is None:
        raise TriformError("this model's folder has no tokenizer with a mask token, so there is nothing to fill")
    if not 1 <= k <= model.spec.vocab:
        raise InputError(f"k={k} is out of range; use 1 to {model.spec.vocab}")
    encoding = tokenizer.encode(text)
    places = [at for at, id in enumerate(encoding.ids) if id == tokenizer.mask]
    if not places:
        raise InputError(f"the text has no mask; write {tokenizer.special['mask']} where a word is missing")
    ids = torch.tensor([encoding.ids])
    scores = model.logits(ids, kinds=torch.tensor([encoding.kinds]).clamp(max=max(0, model.spec.embedding.kinds - 1)))
    chances = scores[0, places].double().softmax(dim=-1)
    best, tokens = chances.topk(k, dim=-1)
    ids[0, places] = tokens[:, 0]
    masks = tuple(
        tuple(Candidate(int(id), tokenizer.decode([int(id)]), float(p)) for p, id in zip(row, names, strict=True))
        for row, names in zip(best.tolist(), tokens.tolist(), strict=True)
    )
    return Filled(tokenizer.decode(ids[0].tolist()), masks)
