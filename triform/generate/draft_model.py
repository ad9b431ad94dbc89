"""Speculative decoding with a small model: it drafts the next tokens, the engine's model verifies them in one pass.

The engine keeps a draft token only if it is the token that it chooses itself, with the same random number of the same
position. So the answer is the large model's own, token by token, whatever is drafted; only the time depends on it. The
draft model draws with the same random numbers, which makes both agree more often than independent draws would.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from triform.errors import InputError
from triform.generate import sampling
from triform.generate.model_runner import ModelRunner
from triform.generate.sequence import RunningSequence
from triform.model import Model
from triform.parameters import count_parameters
from triform.spec import ModelSpec

PREFILL_CHUNK = 128  # tokens of a prompt that the draft model reads in one pass
VERIFY_COST = 0.08  # of one more token in the large model's pass, in passes
START_ACCEPTANCE = 0.7  # before any draft was verified
DECAY = 0.85  # of the running share of accepted tokens
TRY_AGAIN = 32  # tokens after which a sequence whose drafts did not pay is tried again


@dataclass
class DraftedSequence:
    """A row of the draft model: the tokens that it holds, and how often its tokens were accepted."""

    sequence: RunningSequence
    row: int
    cached: list[int] = field(default_factory=list)
    known: int = 0  # of these, surely tokens of the sequence
    drafted: list[int] = field(default_factory=list)  # and not yet compared with what was generated
    drafted_at: int = 0  # tokens generated then
    acceptance: float = START_ACCEPTANCE
    skipped: int = 0  # tokens since drafts stopped paying

    def record_accepted(self) -> None:
        """Compares the last draft with what was generated."""
        for draft, token in zip(self.drafted, self.sequence.tokens[self.drafted_at :], strict=False):
            self.acceptance = DECAY * self.acceptance + (1 - DECAY) * (draft == token)
            if draft != token:
                break
        self.drafted = []


class DraftModel:
    """Drafts for up to `rows` sequences of an engine at once; each has a row of the draft model's own cache."""

    def __init__(self, model: Model, *, large: ModelSpec, rows: int, positions: int) -> None:
        """`large` is the model that verifies."""
        self.vocab = min(model.spec.vocab, large.vocab)
        self.positions = min(positions, model.spec.context)
        self.runner = ModelRunner(model.network, model.spec, rows=rows, positions=self.positions)
        self.cost = count_parameters(model.spec) / count_parameters(large)  # of a token, in passes of the large model
        self.rows: dict[int, DraftedSequence] = {}  # by the identity of the sequence
        self.free = list(range(rows))

    @torch.inference_mode()
    def draft(self, sequences: Sequence[RunningSequence], most: int) -> list[list[int]]:
        """At most `most` tokens per sequence; none where that does not pay."""
        self._release({id(sequence) for sequence in sequences})
        held = [self._find_row(sequence) for sequence in sequences]
        counts = [self._choose_count(each, most) for each in held]
        wanted = [each for each, count in zip(held, counts, strict=True) if count]
        if wanted:
            self._catch_up(wanted)
            self._generate(wanted, max(counts))
        return [each.drafted[:count] for each, count in zip(held, counts, strict=True)]

    def _release(self, running: set[int]) -> None:
        for key in [key for key in self.rows if key not in running]:
            row = self.rows.pop(key).row
            self.runner.clear_rows(row, row + 1)
            self.free.append(row)

    def _find_row(self, sequence: RunningSequence) -> DraftedSequence:
        held = self.rows.get(id(sequence))
        if held is None:
            held = self.rows[id(sequence)] = DraftedSequence(sequence, self.free.pop(0))
            most = min(len(sequence.prompt) + sequence.limit, self.positions)
            self.runner.reserve(most, source=len(sequence.source))
            if sequence.source:
                self.runner.encode(held.row, self._keep_readable(sequence.source))
        held.record_accepted()
        return held

    def _choose_count(self, held: DraftedSequence, most: int) -> int:
        """How many tokens to draft: the count with the most tokens expected per unit of time."""
        left = held.sequence.limit - held.sequence.written - 1  # the pass itself gives one
        count = choose_draft_length(held.acceptance, cost=self.cost, most=min(most, max(0, left)))
        if count or left < 1:
            held.skipped = 0
            return count
        held.skipped += 1
        return int(held.skipped % TRY_AGAIN == 0)

    def _catch_up(self, held: Sequence[DraftedSequence]) -> None:
        """Every row holds all tokens but the last: rejected drafts are dropped, tokens of other roads are read."""
        for each in held:
            tokens = [*each.sequence.prompt, *each.sequence.tokens][:-1]
            known = each.known + count_same(each.cached[each.known :], tokens[each.known :])
            self.runner.drop_last_tokens(each.row, len(each.cached) - known)
            for at in range(known, len(tokens), PREFILL_CHUNK):
                self.runner.prefill(each.row, self._keep_readable(tokens[at : at + PREFILL_CHUNK]))
            each.cached, each.known = tokens, len(tokens)

    def _generate(self, held: Sequence[DraftedSequence], count: int) -> None:
        rows = 1 + max(each.row for each in held)
        for each in held:
            each.drafted, each.drafted_at = [], each.sequence.written
        for _ in range(count):
            last = {each.row: (each.drafted or [each.sequence.last])[-1] for each in held}
            ids = self._keep_readable([last.get(row, 0) for row in range(rows)])
            logits = self.runner.decode([(id,) for id in ids])[:, 0, : self.vocab]
            for row in set(range(rows)) - last.keys():
                self.runner.drop_last_tokens(row, 1)
            for each in held:
                each.cached.append(last[each.row])
                each.drafted.append(choose_token(logits[each.row], each.sequence, ahead=len(each.drafted)))

    def _keep_readable(self, ids: Sequence[int]) -> list[int]:
        """Tokens that only the large model has become the last one that both have: a worse draft, no other answer."""
        return [min(id, self.vocab - 1) for id in ids]


def check_draft(draft: Model, large: Model) -> None:
    """A draft model must be of the same form, and its tokens must mean the same."""
    ours, theirs = (each.tokenizer and each.tokenizer.target for each in (large, draft))
    sizes = count_parameters(draft.spec), count_parameters(large.spec)
    if draft.spec.form != large.spec.form or large.spec.form == "encoder":
        raise InputError(
            f"the draft model is of the form {draft.spec.form}, the model of the form {large.spec.form}; "
            "a draft model must generate, and be of the same form"
        )
    if ours is not None and theirs is not None and not ours.has_tokens_of(theirs):
        raise InputError("the draft model has another tokenizer; use a smaller model of the same family")
    if sizes[0] >= sizes[1]:
        raise InputError(
            f"the draft model has {sizes[0]:,} parameters, the model {sizes[1]:,}: drafts would only cost time; "
            "use a smaller one"
        )


def choose_draft_length(acceptance: float, *, cost: float, most: int) -> int:
    """The number of draft tokens with the most expected tokens per pass of the large model; 0 if none pays."""
    best, choice, expected = 1.0, 0, 1.0
    for count in range(1, most + 1):
        expected += acceptance**count
        speed = expected / (1 + count * (cost + VERIFY_COST))
        if speed > best:
            best, choice = speed, count
    return choice


def choose_token(logits: torch.Tensor, sequence: RunningSequence, *, ahead: int) -> int:
    """As the sequence chooses, with the random number of that position, but without its changes of the logits."""
    settings = sequence.settings
    if settings.temperature == 0.0:
        return int(logits.argmax())
    number = sampling.draw_uniforms(sequence.seed, sequence.written + ahead, sample=sequence.sample)[0]
    weights = sampling.compute_weights(logits, settings)
    return int(sampling.draw(weights, weights.new_tensor(number)))


def count_same(left: Sequence[int], right: Sequence[int]) -> int:
    """How many tokens both begin with."""
    return next((at for at, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))
