"""`response_format`: text that is JSON of a schema, or that a regular expression matches; through llguidance, an extra.

Schemas and expressions come from strangers: they are bounded, compiled and tried beside the event loop by an engine
whose work is linear in the text and bounded per token, and nothing they refer to is fetched. Knows the rows' histories,
over which it lays its ban.
"""

import json
import math
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from triform.generate.sampling import Untouched
from triform.generate.sequence import RowError
from triform.generate.settings import Settings
from triform.serve.http.http_errors import Refusal
from triform.serve.http.limits import Limits
from triform.serve.openai.request_types import AsJson, AsRegex, AsSchema, AsText, Writing
from triform.serve.worker.service import Served

DEEPEST = 32  # levels of a schema
PARAM = "response_format"
COMPACT = {"whitespace_flexible": False}  # a model that likes blanks would write them for ever
TRIED = 4  # tokens written by a new grammar before a worker sees it: its cost shows with the first of them
# Work of the library's lexer, in its own units: 20,000 take about 40 ms, in which other answers of the model wait.
BOUNDS = {
    "initial_lexer_fuel": 100_000,
    "step_lexer_fuel": 20_000,
    "max_lexer_states": 20_000,
    "max_grammar_size": 50_000,
    "verbose_errors": False,
}
ANY_OBJECT = '{"type": "object"}'


class Banned(Untouched):
    """A history under a grammar: what would lead out of it is never chosen."""

    def __init__(self, history: Untouched, matcher: Any) -> None:
        self.history, self.matcher = history, matcher

    def add(self, token: int) -> None:
        self.history.add(token)
        consume(self.matcher, token)

    def changed(self, logits: Tensor) -> Tensor:
        allowed = torch.from_numpy(allowed_tokens(self.matcher, vocab=len(logits)))
        return self.history.changed(logits).masked_fill(~allowed.to(logits.device), -math.inf)

    def fork(self) -> "Banned":
        return Banned(self.history.fork(), self.matcher.deep_copy())


def allowed_tokens(matcher: Any, *, vocab: int) -> "np.ndarray[Any, np.dtype[np.bool_]]":
    """Which tokens may come next."""
    bits = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
    refuse_failed(matcher)
    return np.unpackbits(bits, bitorder="little", count=vocab).astype(np.bool_)


def consume(matcher: Any, token: int) -> None:
    matcher.consume_token(token)
    refuse_failed(matcher)


def refuse_failed(matcher: Any) -> None:
    if matcher.is_error():
        raise RowError(f"the grammar cannot be followed: {first_line(matcher.get_error())}", param=PARAM)


def first_line(error: str) -> str:
    """What the library says, without the state it prints behind it."""
    return " ".join(error.partition("\n")[0].split())[:200]


class Compiled:
    """A grammar, compiled once; every row begins at its beginning."""

    def __init__(self, matcher: Any) -> None:
        self.matcher = matcher

    def over(self, history: Untouched) -> Untouched:
        return Banned(history, self.matcher.deep_copy())


async def grammar_of(served: Served, asked: Writing, settings: Settings, *, limits: Limits) -> Compiled | None:
    """The grammar a request asks for, if it does."""
    wanted = asked.response_format
    if wanted is None or isinstance(wanted, AsText):
        return None
    if not settings.eos or settings.ignore_eos or served.model.tokenizer is None:
        raise Refusal("a response_format needs a tokenizer with an end token, and ignore_eos off", param=PARAM)
    return await served.lanes.grammars.run(lambda: compiled(served, wanted, settings.eos, limits))


def compiled(served: Served, wanted: AsJson | AsSchema | AsRegex, eos: tuple[int, ...], limits: Limits) -> Compiled:
    guidance = library()
    text = written(wanted, limits)
    try:
        if isinstance(wanted, AsRegex):
            source = guidance.LLMatcher.grammar_from_regex(text)
        else:
            source = guidance.LLMatcher.grammar_from_json_schema(text, overrides=COMPACT)
        limits_of_parser = guidance.LLParserLimits(**BOUNDS)
        matcher = guidance.LLMatcher(words(served, eos), source, log_level=0, limits=limits_of_parser)
        refuse_failed(matcher)
        try_out(matcher.deep_copy(), vocab=served.model.spec.vocab, eos=eos)
    except (ValueError, RowError) as error:
        raise Refusal(f"this grammar cannot be used: {first_line(str(error))}", param=PARAM) from None
    return Compiled(matcher)


def try_out(matcher: Any, *, vocab: int, eos: tuple[int, ...]) -> None:
    """A few tokens of a text under the grammar, one after another: here nobody else waits for it."""
    for _ in range(TRIED):
        (allowed,) = allowed_tokens(matcher, vocab=vocab).nonzero()
        tokens = [int(token) for token in allowed if token not in eos]
        if not tokens:
            return
        consume(matcher, tokens[0])


def written(wanted: AsJson | AsSchema | AsRegex, limits: Limits) -> str:
    if isinstance(wanted, AsRegex):
        return wanted.pattern
    if isinstance(wanted, AsJson):
        return ANY_OBJECT
    text = msgspec.json.encode(wanted.json_schema.schema).decode()
    if depth(json.loads(text)) > DEEPEST:
        raise Refusal(f"the schema is nested more than {DEEPEST} levels deep", param=PARAM)
    return text


def depth(value: Any) -> int:
    """Levels of objects and lists, without a recursion that a stranger could exhaust."""
    level, here = 0, [value]
    while here := [one for one in here if isinstance(one, dict | list)]:
        level += 1
        here = [inner for one in here for inner in (one.values() if isinstance(one, dict) else one)]
    return level


def words(served: Served, eos: tuple[int, ...]) -> Any:
    """The model's vocabulary as the library wants it: made once, since it takes a second."""
    known = served.vocabularies.get(eos)
    if known is None:
        tokenizer: Any = served.model.tokenizer
        text = tokenizer.target.to_json()
        known = library().LLTokenizer(text, n_vocab=served.model.spec.vocab, eos_token=list(eos))
        served.vocabularies[eos] = known
    return known


def library() -> Any:
    try:
        import llguidance
    except ImportError:
        said = "this service has no grammars: its host may add them with pip install llguidance, then start it again"
        raise Refusal(said, param=PARAM, code="no_grammar") from None
    return llguidance
