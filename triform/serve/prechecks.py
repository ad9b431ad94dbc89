"""Refuses what a task would refuse, before it reaches a worker: no batch of other clients fails for it.

And what a task does here in another way than offline: vectors of token ids.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec

from triform.errors import InputError
from triform.generate.validate import check_tokens
from triform.model import Model
from triform.serve.http.http_errors import RequestError
from triform.serve.http.limits import TOO_LONG_CODE
from triform.tasks.embed import EmbeddingVector
from triform.tasks.encoder_batches import TextWindows, check_texts, get_max_tokens
from triform.tasks.fill import encode_masked, require_mask_tokenizer
from triform.tasks.task import Task
from triform.tasks.text_to_text import TextToText
from triform.tasks.text_vectors import vectors_of_windows
from triform.text.tokenizer import Tokenizer

PIECE_CHARACTERS, PIECES_AT_ONCE = 2**12, 4
CUT_TOKENS = 8  # that a cut may add


def check_questions(
    task: Task[Any, Any, Any], asked: Sequence[Any], *, model: Model, most: int | None = None
) -> list[int]:
    """Raises what the task would raise; else how many tokens each question has, at most about `most` in all."""
    if most is not None:
        refuse_in_pieces([" ".join(list_texts(one)) for one in asked], model.require_tokenizer(), most=most)
    if task.name == "fill":
        return [
            len(encode_masked(text, require_mask_tokenizer(model), most=model.spec.context)[0].ids) for text in asked
        ]
    if isinstance(task, TextToText) and model.spec.decoder is not None:
        check_texts([task.prompt(one) for one in asked])
    else:
        check_parts(asked)
    texts = [" ".join(list_texts(one)) for one in asked]
    counts = [len(ids) for ids in model.require_tokenizer().ids_many(texts)]
    for text, count in zip(texts, counts, strict=True):
        if not count:
            raise InputError(f"nothing of the text {text[:40]!r} is left in tokens")
    return counts


def refuse_in_pieces(texts: Sequence[str], tokenizer: Tokenizer, *, most: int) -> None:
    """Refuses texts that surely have too many tokens, piece by piece: it holds and pays for little more than `most`.

    Texts of at most `most` characters are not looked at. A cut may add a few tokens, which are taken off again.
    """
    if sum(map(len, texts)) <= most:
        return
    least = sum(map(tokenizer.min_tokens, texts))
    pieces = (text[at : at + PIECE_CHARACTERS] for text in texts for at in range(0, len(text), PIECE_CHARACTERS))
    found = cuts = 0
    while least <= most and (some := list(islice(pieces, PIECES_AT_ONCE))):
        found += sum(map(len, tokenizer.ids_many(some, special=False)))
        cuts += len(some)
        least = max(least, found - CUT_TOKENS * cuts)
    if least > most:
        message = f"the texts have at least {least:,} tokens; at most {most:,} are accepted in one request"
        raise RequestError(message, code=TOO_LONG_CODE)


def check_parts(asked: Sequence[Any]) -> None:
    """No text may be blank; of a question with several fields, says which one is."""
    for question in asked:
        fields = {None: question} if isinstance(question, str) else msgspec.structs.asdict(question)
        for name, part in fields.items():
            try:
                check_texts([part] if isinstance(part, str) else part)
            except InputError as error:
                raise InputError(str(error), field=name) from None


def list_texts(asked: Any) -> list[str]:
    """The texts of a question."""
    if isinstance(asked, str):
        return [asked]
    return [text for part in msgspec.structs.astuple(asked) for text in ([part] if isinstance(part, str) else part)]


# --- token ids ------------------------------------------------------------------------------------------------------


def check_ids(rows: Sequence[Sequence[int]], *, model: Model) -> None:
    """Refuses token ids outside the vocabulary, and texts that are too long."""
    for ids in rows:
        check_tokens(model.spec.vocab, input=tuple(ids))
        if len(ids) > get_max_tokens(model):
            raise RequestError(
                f"the input has {len(ids):,} tokens, the model reads {get_max_tokens(model):,} at once; give the text, "
                "of which the beginning is read",
                param="input", code=TOO_LONG_CODE,
            )  # fmt: skip


def embed_ids(
    rows: Sequence[Sequence[int]], *, model: Model, dimensions: int | None = None
) -> Iterator[EmbeddingVector]:
    """What `Embed.run` gives of texts, of their tokens, which are read as they are."""
    vectors = vectors_of_windows([TextWindows([ids], 0) for ids in rows], model=model, dimensions=dimensions)
    for vector, ids in zip(vectors.tolist(), rows, strict=True):
        yield EmbeddingVector(vector=tuple(vector), unknown=model.require_tokenizer().count_unknown(ids))
