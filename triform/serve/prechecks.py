"""Refuses what a task would refuse, before it reaches a worker: no batch of other clients fails for it.

And what a task does here in another way than offline: vectors of token ids.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from torch.nn import functional as F

from triform.errors import InputError
from triform.generate.validate import check_tokens
from triform.model import Model
from triform.serve.http.http_errors import Refusal
from triform.serve.http.limits import TOO_LONG
from triform.tasks.embed import MEAN, POOLS, EmbeddingVector
from triform.tasks.encoder_batches import Windows, check_texts, longest_of, window_means
from triform.tasks.fill import masked, masked_words
from triform.tasks.task import Task
from triform.tasks.text_to_text import TextToText


def check(task: Task[Any, Any, Any], asked: Sequence[Any], *, model: Model) -> list[int]:
    """Raises what the task would raise; else how many tokens each question has."""
    if task.name == "fill":
        return [len(masked(text, masked_words(model), most=model.spec.context)[0].ids) for text in asked]
    if isinstance(task, TextToText) and model.spec.decoder is not None:
        check_texts([task.prompt(one) for one in asked])
    else:
        check_parts(asked)
    texts = [" ".join(parts_of(one)) for one in asked]
    counts = [len(ids) for ids in model.require_tokenizer().ids_many(texts)]
    for text, count in zip(texts, counts, strict=True):
        if not count:
            raise InputError(f"nothing of the text {text[:40]!r} is left in tokens")
    return counts


def check_parts(asked: Sequence[Any]) -> None:
    """No text may be blank; of a question with several fields, says which one is."""
    for question in asked:
        fields = {None: question} if isinstance(question, str) else msgspec.structs.asdict(question)
        for name, part in fields.items():
            try:
                check_texts([part] if isinstance(part, str) else part)
            except InputError as error:
                raise InputError(str(error), field=name) from None


def parts_of(asked: Any) -> list[str]:
    """The texts of a question."""
    if isinstance(asked, str):
        return [asked]
    return [text for part in msgspec.structs.astuple(asked) for text in ([part] if isinstance(part, str) else part)]


# --- token ids ------------------------------------------------------------------------------------------------------


def check_ids(rows: Sequence[Sequence[int]], *, model: Model) -> None:
    for ids in rows:
        check_tokens(model.spec.vocab, input=tuple(ids))
        if len(ids) > longest_of(model):
            raise Refusal(
                f"the input has {len(ids):,} tokens, the model reads {longest_of(model):,} at once; give the text, "
                "of which the beginning is read",
                param="input", code=TOO_LONG,
            )  # fmt: skip


def vectors_of_ids(rows: Sequence[Sequence[int]], *, model: Model) -> Iterator[EmbeddingVector]:
    """What `Embed.run` gives of texts, of their tokens, which are read as they are."""
    pooling = model.pooling or MEAN
    found = window_means([Windows([ids], 0) for ids in rows], model=model, read=POOLS[pooling.kind])
    vectors = F.normalize(found, dim=-1) if pooling.normalise else found
    for vector, ids in zip(vectors.tolist(), rows, strict=True):
        yield EmbeddingVector(vector=tuple(vector), unknown=model.require_tokenizer().count_unknown(ids))
