"""`response_format`: constrains generation to JSON, a JSON schema or a regular expression, with the extra llguidance.

Schemas and expressions come from clients: their size is limited, they are compiled and tried outside the event loop,
the work per token is bounded, and references are never fetched.
"""

import json
import math
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from triform.generate.sampling import PlainHistory
from triform.generate.sequence import SequenceError
from triform.generate.settings import Settings
from triform.serve.http.http_errors import RequestError
from triform.serve.openai.request_types import GenerationRequest, JsonFormat, RegexFormat, SchemaFormat, TextFormat
from triform.serve.worker.service import ServedModel

MAX_SCHEMA_DEPTH = 32
PARAM = "response_format"
CALL_PARAM = "tool_choice"
COMPACT = {"whitespace_flexible": False}  # a model might generate spaces for ever
TRIAL_TOKENS = 4  # generated under a new grammar before a worker gets it: a costly one fails with the first of them
# Work of the library's lexer, in its own units: 20,000 take about 40 ms, in which other requests of the model wait.
PARSER_LIMITS = {
    "initial_lexer_fuel": 100_000,
    "step_lexer_fuel": 20_000,
    "max_lexer_states": 20_000,
    "max_grammar_size": 50_000,
    "verbose_errors": False,
}
ANY_OBJECT = '{"type": "object"}'


class ConstrainedHistory(PlainHistory):
    """A sequence's history under a grammar: tokens outside the grammar are never chosen."""

    def __init__(self, history: PlainHistory, matcher: Any) -> None:
        self.history, self.matcher = history, matcher

    def add(self, token: int) -> None:
        self.history.add(token)
        consume_token(self.matcher, token)

    def change_logits(self, logits: Tensor) -> Tensor:
        allowed = torch.from_numpy(allowed_tokens(self.matcher, vocab=len(logits)))
        return self.history.change_logits(logits).masked_fill(~allowed.to(logits.device), -math.inf)

    def fork(self) -> "ConstrainedHistory":
        return ConstrainedHistory(self.history.fork(), self.matcher.deep_copy())


def allowed_tokens(matcher: Any, *, vocab: int) -> "np.ndarray[Any, np.dtype[np.bool_]]":
    """A mask over the vocabulary: which tokens may come next."""
    bits = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
    refuse_failed(matcher)
    return np.unpackbits(bits, bitorder="little", count=vocab).astype(np.bool_)


def consume_token(matcher: Any, token: int) -> None:
    matcher.consume_token(token)
    refuse_failed(matcher)


def refuse_failed(matcher: Any) -> None:
    if matcher.is_error():
        raise SequenceError(f"the grammar cannot be followed: {first_line(matcher.get_error())}", param=PARAM)


def first_line(error: str) -> str:
    """The library's message without the state dump after it."""
    return " ".join(error.partition("\n")[0].split())[:200]


class CompiledGrammar:
    """A compiled grammar; every sequence starts at its beginning."""

    def __init__(self, matcher: Any) -> None:
        self.matcher = matcher

    def over(self, history: PlainHistory) -> PlainHistory:
        return ConstrainedHistory(history, self.matcher.deep_copy())


async def find_grammar(served: ServedModel, request: GenerationRequest, settings: Settings) -> CompiledGrammar | None:
    """The compiled grammar of a request, if it has one."""
    format = request.response_format
    if format is None or isinstance(format, TextFormat):
        return None
    if not settings.eos or settings.ignore_eos or served.model.tokenizer is None:
        raise RequestError("response_format needs a tokenizer with an end token, and ignore_eos: false", param=PARAM)
    return await served.queues.grammars.run(lambda: compile_grammar(served, format, settings.eos))


async def compile_call(served: ServedModel, grammar: str, settings: Settings) -> CompiledGrammar:
    """The grammar of an answer that must call a tool."""
    if not settings.eos or settings.ignore_eos:
        raise RequestError("this tool_choice needs an end token, and ignore_eos: false", param=CALL_PARAM)
    try:
        return await served.queues.grammars.run(lambda: compile_grammar(served, grammar, settings.eos))
    except RequestError as error:
        raise RequestError(
            str(error).replace(PARAM, CALL_PARAM), status=error.status, param=CALL_PARAM, code=error.code
        ) from None


def compile_grammar(
    served: ServedModel, format: JsonFormat | SchemaFormat | RegexFormat | str, eos: tuple[int, ...]
) -> CompiledGrammar:
    """`format` as text is a grammar in Lark."""
    guidance = import_llguidance()
    text = format if isinstance(format, str) else grammar_source(format)
    try:
        if isinstance(format, str):
            source = guidance.LLMatcher.grammar_from_lark(text)
        elif isinstance(format, RegexFormat):
            source = guidance.LLMatcher.grammar_from_regex(text)
        else:
            source = guidance.LLMatcher.grammar_from_json_schema(text, overrides=COMPACT)
        parser_limits = guidance.LLParserLimits(**PARSER_LIMITS)
        matcher = guidance.LLMatcher(grammar_vocabulary(served, eos), source, log_level=0, limits=parser_limits)
        refuse_failed(matcher)
        try_grammar(matcher.deep_copy(), vocab=served.model.spec.vocab, eos=eos)
    except (ValueError, SequenceError) as error:
        raise RequestError(f"this grammar cannot be used: {first_line(str(error))}", param=PARAM) from None
    return CompiledGrammar(matcher)


def try_grammar(matcher: Any, *, vocab: int, eos: tuple[int, ...]) -> None:
    """Generates a few tokens under the grammar, where no other request waits for it."""
    for _ in range(TRIAL_TOKENS):
        (allowed,) = allowed_tokens(matcher, vocab=vocab).nonzero()
        tokens = [int(token) for token in allowed if token not in eos]
        if not tokens:
            return
        consume_token(matcher, tokens[0])


def grammar_source(format: JsonFormat | SchemaFormat | RegexFormat) -> str:
    """The pattern or JSON schema of a response format, checked."""
    if isinstance(format, RegexFormat):
        return format.pattern
    if isinstance(format, JsonFormat):
        return ANY_OBJECT
    text = msgspec.json.encode(format.json_schema.schema).decode()
    if nesting_depth(json.loads(text)) > MAX_SCHEMA_DEPTH:
        raise RequestError(f"the schema is nested more than {MAX_SCHEMA_DEPTH} levels deep", param=PARAM)
    return text


def nesting_depth(value: Any) -> int:
    """Levels of objects and lists; without recursion, which a client could exhaust."""
    level, values = 0, [value]
    while values := [value for value in values if isinstance(value, dict | list)]:
        level += 1
        values = [inner for value in values for inner in (value.values() if isinstance(value, dict) else value)]
    return level


def grammar_vocabulary(served: ServedModel, eos: tuple[int, ...]) -> Any:
    """The model's vocabulary for the library: made once, since it takes a second."""
    if eos not in served.vocabularies:
        text = served.model.require_tokenizer().target.to_json()
        vocabulary = import_llguidance().LLTokenizer(text, n_vocab=served.model.spec.vocab, eos_token=list(eos))
        served.vocabularies[eos] = vocabulary
    return served.vocabularies[eos]


def import_llguidance() -> Any:
    """The llguidance package; its absence is an error that says how to install it."""
    try:
        import llguidance
    except ImportError:
        message = "response_format needs an extra on the server: pip install llguidance, then restart the service"
        raise RequestError(message, param=PARAM, code="no_grammar") from None
    return llguidance
