"""How likely a model finds texts that are there: perplexity, for the tasks that are judged by it."""

import lzma
import math
from collections.abc import Sequence
from typing import Any

from triform.model import Model
from triform.tasks.task import Scores
from triform.text.tokenizer import Tokenizer
from triform.train.examples import Examples
from triform.train.objectives import Objective
from triform.train.validation_loss import mean_loss

BETWEEN_DOCUMENTS = "<|endoftext|>"


def compute_perplexity(
    examples: Examples[Any],
    *,
    objective: Objective[Any, Any],
    model: Model,
    rows: int,
    bytes_of_text: int,
    signature: str,
) -> Scores:
    """exp(Σ −log p / tokens), and Σ −log₂ p / bytes, which does not depend on how the text was cut into tokens.

    `bytes_of_text` are those of the tokens that are predicted; `signature` says which tokens these are."""
    score = mean_loss(model.network, objective=objective, examples=examples)
    targets = int(score.others["targets"])
    values = {
        "perplexity": math.exp(min(score.value, 700.0)),
        "bits per byte": score.value * targets / math.log(2) / max(1, bytes_of_text),
        "tokens": targets,
    }
    counts = {"counted": {"rows": rows, "tokens": targets, "bytes": bytes_of_text}}
    return Scores(main="perplexity", values=values, rows=rows, higher=False, signature=signature, counts=counts)


def get_start_tokens(tokenizer: Tokenizer) -> tuple[int, ...]:
    """What stood before a text in training: what the tokenizer itself puts there (Llama's <s>), else the token between
    documents (GPT-2's <|endoftext|>, also where a chat has named its bos differently), else bos, else eos."""
    found = tokenizer.encode("a")
    own = next((at for at, part in enumerate(found.parts) if part is not None), 0)
    if own:
        return found.ids[:own]
    between = tokenizer.id_of(BETWEEN_DOCUMENTS)
    known = (between if between in tokenizer.special_ids else None, tokenizer.bos, tokenizer.eos)
    return next(((id,) for id in known if id is not None), ())


def score_compression(texts: Sequence[str], *, before: Sequence[str]) -> Scores:
    """What xz, which knows no language, needs for these texts behind those it has read before."""
    known, wanted = ("\n".join(each).encode() for each in (before, texts))
    bits = 8 * (len(lzma.compress(known + wanted)) - (len(lzma.compress(known)) if known else 0))
    return Scores(
        main="bits per byte", values={"bits per byte": bits / max(1, len(wanted))}, rows=len(texts), higher=False
    )
