"""`look`: one forward pass with taps, and a `View` of all that was computed.

    view = look(model, "the fat ginger cat sat on a mat")
    q, k, v = view.qkv(3)              # of layer 3
    view.attention(3, head=2)          # tokens × tokens
    view.ledger(3)                     # what each sublayer added to the residual stream
    view.lens()                        # logit lens: the next token predicted from each layer

The taps change nothing: the logits are bit-identical to those of a plain pass.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from triform.core import inputs
from triform.core.forms import Form
from triform.errors import InputError
from triform.files.safetensors_data import write_tensors
from triform.inspect import attention_view, module_paths
from triform.inspect.attention_view import ALL, QKV, AttentionCall, HeadFormula
from triform.inspect.decoding_steps import GreedyContinuation, decode_greedily, make_text
from triform.inspect.labelled_array import ArrayAxis, LabelledArray
from triform.inspect.module_paths import AttentionKind, StackName
from triform.inspect.taps import CallRecord, record_calls, stop_after
from triform.inspect.token_labels import LabelledTokens, TextOrIds, token_label, tokenize_target, tokenize_text
from triform.model import Model
from triform.precision import relative_error
from triform.shapes import BTD
from triform.spec import ModelSpec, Own, Tied, Transformed
from triform.text.tokenizer import Tokenizer

MAX_LOGIT_POSITIONS = 256  # whose logits over the whole vocabulary are held at once


@torch.no_grad()
def look(
    model: Model,
    text: TextOrIds,
    target: TextOrIds | None = None,
    *,
    start: int | None = None,
    keep: str = "*",
    until: str | None = None,
) -> "View":
    """One forward pass over a text, or over ids; of an encoder–decoder over a source and its target.

    The token `start` is put before a target text. `keep` is the pattern of module paths to record:
    "decoder.blocks.3*" for one layer of a large model. The pass ends after the module `until`, if set:
    "decoder.blocks.3" skips all later layers and the head.
    """
    source, decoded = tokenize_text(text, model.tokenizer), None
    texts = {next(iter(model.spec.stacks)): source}
    tokenizer = model.tokenizer  # of the predicted tokens
    if model.network.sides == 2:
        tokenizer = None if tokenizer is None else tokenizer.target
        decoded = texts["decoder"] = tokenize_target(target, tokenizer, start=start)
    elif target is not None or start is not None:
        raise InputError(f"a target is for encoder-decoders; this model is the form {model.spec.form!r}")
    logits = None
    with record_calls(model.network, keep) as record, stop_after(model.network, until):
        logits = inputs.compute_logits(
            model.network,
            model.spec,
            [source.ids],
            target=None if decoded is None else [decoded.ids],
            kinds=[source.segment_ids] if model.spec.embedding.kinds else None,
        )
    return View(model.spec, model.network, tokenizer, texts, record, logits)


@dataclass(frozen=True, eq=False)
class View:
    """All that was computed in one pass. `stack` is the last one, which feeds the head, unless it is named.

    Attention is recomputed on demand from the kernel's own inputs; `.error` of a result is the difference from the
    kernel's own output.
    """

    spec: ModelSpec
    network: Form
    tokenizer: Tokenizer | None
    texts: dict[str, LabelledTokens]
    record: CallRecord
    scores: Tensor | None  # the network's own logits; None if the pass ended earlier
    frame: Callable[[], str] | None = None  # makes the page of this run, for a notebook

    # --- attention --------------------------------------------------------------------------------------------------

    def qkv(self, layer: int, *, kind: AttentionKind = "self", stack: StackName | None = None) -> QKV:
        """q, k and v of all heads as they entered the kernel: `q, k, v = view.qkv(3)`"""
        return self._attention_call(layer, None, kind, stack).qkv()

    def attention(
        self,
        layer: int,
        head: int | None = None,
        *,
        kind: AttentionKind = "self",
        stack: StackName | None = None,
        queries: slice = ALL,
        keys: slice = ALL,
    ) -> LabelledArray:
        """The weights of one head, queries × keys; without `head`, heads × queries × keys."""
        call = self._attention_call(layer, head, kind, stack)
        weights = call.attention(call.heads if head is None else [head], queries, keys)
        return weights if head is None else weights[0]

    def formula(
        self,
        layer: int,
        head: int,
        *,
        kind: AttentionKind = "self",
        stack: StackName | None = None,
        queries: slice = ALL,
    ) -> HeadFormula:
        """Every step of one head: q, k, v, scores, mask, masked, weights, mixed."""
        return self._attention_call(layer, head, kind, stack).formula(head, queries)

    def contributions(
        self, layer: int, *, kind: AttentionKind = "self", stack: StackName | None = None, positions: slice = ALL
    ) -> LabelledArray:
        """What each head adds to the residual stream, head_j W_O[j], and the bias; the sum is the output projection."""
        path = module_paths.attention_path(self.network, layer, kind=kind, stack=stack)
        attention = module_paths.get_attention(self.network, path)
        (entered, *_), output = self.record.last_call(f"{path}.out")
        added = attention_view.split_contributions(
            entered[0, positions], attention.out, head_width=attention.head_width
        )
        heads = ArrayAxis("head", (*map(str, range(len(added) - 1)), "bias"))
        axes = heads, self._tokens(stack, positions), ArrayAxis.numbered("width", self.spec.width)
        error = relative_error(added.sum(0), output[0, positions].to(added.dtype))
        return LabelledArray.from_tensor(added, axes, title=f"contributions of {path.removesuffix('.f')}", error=error)

    def _attention_call(
        self, layer: int, head: int | None, kind: AttentionKind, stack: StackName | None
    ) -> AttentionCall:
        path = module_paths.attention_path(self.network, layer, kind=kind, stack=stack)
        if head is not None:
            module_paths.check_head(self.network, path, head)
        name = module_paths.check_stack(self.network, stack)
        return AttentionCall(
            call=self.record.last_call(f"{path}.attend"),
            queries=self.texts[name].labels,
            keys=self.texts["encoder" if kind == "cross" else name].labels,
            scale=self.spec.stacks[name].attention.score_scale,
            title=path.removesuffix(".f"),
        )

    # --- the residual stream ------------------------------------------------------------------------------------------

    def stream(self, *, stack: StackName | None = None, positions: slice = ALL) -> LabelledArray:
        """The residual stream from embeddings to final norm: places × tokens × width"""
        walk = self._walk(stack, positions)
        axes = (
            ArrayAxis("place", tuple(walk)),
            self._tokens(stack, positions),
            ArrayAxis.numbered("width", self.spec.width),
        )
        return LabelledArray.from_tensor(torch.cat(list(walk.values())), axes, title="residual stream")

    def angles(self, *, stack: StackName | None = None, positions: slice = ALL) -> LabelledArray:
        """Degrees by which each layer rotates each token's vector; lengths are `view.stream().lengths()`."""
        walk = self._walk(stack, positions)
        x = torch.cat(list(walk.values()))
        axes = ArrayAxis("place", tuple(walk)[1:]), self._tokens(stack, positions)
        return LabelledArray.from_tensor(degrees_between(x[:-1], x[1:]), axes, title="degrees turned")

    def ledger(self, layer: int, *, stack: StackName | None = None, positions: slice = ALL) -> LabelledArray:
        """The input of a block and what attention, cross-attention and feed-forward added; the sum is its output.

        With post-norm, the change made by each norm is an entry of its own.
        """
        path = module_paths.block_path(self.network, layer, stack=stack)
        parts = [name for name, _ in self.network.get_submodule(path).named_children()]
        names, vectors = zip(*read_ledger(self.record, path, parts, positions), strict=True)
        added = torch.stack(vectors)
        axes = ArrayAxis("entry", names), self._tokens(stack, positions), ArrayAxis.numbered("width", self.spec.width)
        error = relative_error(added.sum(0), self.record.last_call(path).output[0, positions].double())
        return LabelledArray.from_tensor(added, axes, title=f"ledger of {path}", error=error)

    def shares(self, layer: int, *, stack: StackName | None = None, positions: slice = ALL) -> LabelledArray:
        """Each ledger entry projected on the direction of the block's output: they sum to its length."""
        ledger = self.ledger(layer, stack=stack, positions=positions)
        output = ledger.values.sum(0)
        shares = (ledger.values * (output / np.linalg.norm(output, axis=-1, keepdims=True))).sum(-1)
        return LabelledArray(f"{ledger.title}: shares of the length", ledger.axes[:-1], shares, None, ledger.error)

    def _walk(self, stack: StackName | None, positions: slice = ALL) -> dict[str, Tensor]:
        """The residual stream at every place, each [1, T, D]; tokens of another width enter it at the entry."""
        name = module_paths.check_stack(self.network, stack)
        layers = range(self.spec.stacks[name].layers)
        paths = {"entry": f"{name}.entry"} | {f"block {i}": f"{name}.blocks.{i}" for i in layers}
        paths["final"] = f"{name}.final"
        token = self.record.calls_of("token")[list(self.texts).index(name)].output
        walk = {} if self.spec.embedding.width is not None else {"token": token}
        walk |= {place: self.record.last_call(path).output for place, path in paths.items()}
        return {place: x[:, positions] for place, x in walk.items()}

    # --- predictions --------------------------------------------------------------------------------------------------

    @cached_property
    def logits(self) -> Tensor:
        """The network's own; if the pass ended before the head, computed now from the last hidden states."""
        if self.scores is not None:
            return self.scores
        final = self.record.last_call(f"{self._last}.final").output
        with torch.no_grad():
            return self.network.head(self.network.pick(make_text(self.network, self.predicted_text.ids), final))

    def logits_at(self, position: int) -> Tensor:
        """The logits of one position alone, without computing the others."""
        final = self.record.last_call(f"{self._last}.final").output
        with torch.no_grad():
            return self.network.head(final[:, position, None])[0, 0]

    def next(self, k: int = 10, *, position: int = -1, place: str | None = None) -> LabelledArray:
        """The k most likely next tokens after a position; predicted from an earlier `place` ("block 3") if set."""
        check_language_head(self.spec)
        count = len(self.predicted_text.ids)
        if not -count <= position < count:
            raise InputError(f"position {position} is not in this text; its positions are 0 to {count - 1}")
        if place is None:
            return self.top_tokens(self.logits[0, position], k)
        walk = self._walk(None)
        if place not in walk:
            raise InputError(f"place={place!r} is not in this model; its places are {', '.join(walk)}")
        x = walk[place][:, position, None]
        return self.top_tokens(next(predict_from(self.network, self._last, x))[0], k)

    def lens(self, *, positions: slice = ALL) -> LabelledArray:
        """Logit lens: the most likely next token and its probability, predicted from each layer: places × tokens

        Each place computes the head over the whole vocabulary; `positions` limits it.
        """
        check_language_head(self.spec)
        walk = {place: x for place, x in self._walk(None, positions).items() if place not in ("token", "final")}
        probabilities, words = [], []
        for x in walk.values():
            for logits in predict_from(self.network, self._last, x):
                best = logits.max(dim=-1)
                probabilities.append((best.values - logits.logsumexp(dim=-1)).exp())
                words += [self.label(id) for id in best.indices.tolist()]
        axes = ArrayAxis("place", tuple(walk)), ArrayAxis("token", self.predicted_text.labels[positions])
        shape = [len(axis.labels) for axis in axes]
        table = np.array(words, dtype=object).reshape(shape)
        return LabelledArray.from_tensor(
            torch.cat(probabilities).view(shape), axes, title="next token predicted from each layer", words=table
        )

    def top_tokens(self, logits: Tensor, k: int) -> LabelledArray:
        """softmax(logits), the k largest of it"""
        if not 1 <= k <= len(logits):
            raise InputError(f"k={k} tokens cannot be shown; use 1 to {len(logits)}")
        best = logits.double().softmax(dim=-1).topk(k)
        words = tuple(self.label(id) for id in best.indices.tolist())
        return LabelledArray.from_tensor(best.values, [ArrayAxis("token", words)], title="next token")

    def steps(self, count: int = 8, *, k: int = 10, ends: Collection[int] = ()) -> GreedyContinuation:
        """Greedy decoding with a cache: per step the candidate tokens, the positions computed and those read.

        It ends at the tokenizer's end token or at one of `ends`. The network runs as it is now, interventions included.
        """
        check_language_head(self.spec)
        own = {self.tokenizer.eos} if self.tokenizer is not None and self.tokenizer.eos is not None else set()
        return decode_greedily(self, count=count, k=k, ends=own | set(ends))

    def label(self, id: int) -> str:
        return token_label(id, self.tokenizer)

    # --- any module, and export ---------------------------------------------------------------------------------------

    def read(self, path: str) -> LabelledArray:
        """The output of any module, by its path: `view.read("decoder.blocks.3.feedforward.f.up")`"""
        output = self.record.last_call(path).output
        if not isinstance(output, Tensor):
            raise InputError(f"{path!r} outputs {type(output).__name__}, not a tensor; read it from view.record")
        axes = [ArrayAxis.numbered(f"axis {i}", size) for i, size in enumerate(output.shape[1:])]
        name = "encoder" if path.endswith(".cross.f.kv") else path.split(".")[0]
        tokens = self.texts.get(name, self.predicted_text).labels
        if len(axes) > 1 and len(axes[-2].labels) == len(tokens):
            axes[-2] = ArrayAxis("token", tokens)
        return LabelledArray.from_tensor(output[0], axes, title=path)

    def to_builtins(self) -> dict[str, Any]:
        """Tokens, layers and heads of every stack, as plain values."""
        stacks = {
            name: {
                "tokens": list(self.texts[name].labels),
                "ids": list(self.texts[name].ids),
                "layers": stack.layers,
                "heads": stack.attention.heads,
                "kv_heads": stack.attention.kv_heads,
                "head_width": stack.attention.head_width,
            }
            for name, stack in self.spec.stacks.items()
        }
        return {"form": self.spec.form, "dtype": self.dtype, "stacks": stacks}

    def to_json(self) -> str:
        return msgspec.json.encode(self.to_builtins()).decode()

    def save(self, path: str | Path) -> None:
        """A safetensors file with the outputs of all recorded modules, by path, and the tokens as metadata."""
        outputs = {path: calls[-1].output for path, calls in self.record.calls.items() if path}
        outputs |= {} if self.scores is None else {"logits": self.scores}
        tensors = {path: x for path, x in outputs.items() if isinstance(x, Tensor)}
        write_tensors(path, tensors, metadata={"view": self.to_json()})

    def _repr_html_(self) -> str | None:
        """What a notebook shows: the page of this run, where its texts are known."""
        return None if self.frame is None else self.frame()

    def __repr__(self) -> str:
        counts = ", ".join(f"{name} {len(tokens.ids)} tokens" for name, tokens in self.texts.items())
        return f"View({self.spec.form}: {counts})"

    @property
    def dtype(self) -> str:
        return str(self.network.dtype).removeprefix("torch.")

    @property
    def predicted_text(self) -> LabelledTokens:
        """The text whose next tokens are predicted: the target of an encoder-decoder."""
        return self.texts[self._last]

    @property
    def _last(self) -> str:
        return module_paths.check_stack(self.network, None)

    def _tokens(self, stack: StackName | None, positions: slice) -> ArrayAxis:
        return ArrayAxis("token", self.texts[module_paths.check_stack(self.network, stack)].labels[positions])


# --- arithmetic, in float64 -----------------------------------------------------------------------------------------


def read_ledger(record: CallRecord, path: str, parts: Iterable[str], positions: slice) -> list[tuple[str, Tensor]]:
    """input + what each part added (+ the change made by the norm after it) = output of the block; each [T, D]"""
    entries = [("input", record.last_call(path).inputs[0][0, positions].double())]
    for part in parts:
        entries.append((part, record.last_call(f"{path}.{part}.drop").output[0, positions].double()))
        (entered, *_), output = record.last_call(f"{path}.{part}.outer")
        if output is not entered:  # post-norm: it rewrites the stream
            entries.append((f"norm after {part}", output[0, positions].double() - entered[0, positions].double()))
    return entries


def degrees_between(one: Tensor, other: Tensor) -> Tensor:
    """Angles between vectors along the last axis; exactly 0 between equal ones (Kahan's formula). An angle has the same
    bits beside any others: lengths are added up in order, and numpy's arctan2 computes the rest of a row as the row."""
    a, b = (x.double() / measure_lengths(x.double())[..., None] for x in (one, other))
    halves = np.arctan2(*(measure_lengths(x).cpu().numpy() for x in (a - b, a + b)))
    return torch.rad2deg(2 * torch.as_tensor(halves))


def measure_lengths(x: Tensor) -> Tensor:
    """√(x₀² + x₁² + …), added from the first to the last"""
    return x.square().cumsum(dim=-1)[..., -1].sqrt()


def check_language_head(spec: ModelSpec) -> None:
    if not isinstance(spec.head, Tied | Own | Transformed):
        raise InputError(f"this model has the head {type(spec.head).__name__}; next tokens need a language-model head")


@torch.no_grad()
def predict_from(network: Form, stack: str, x: BTD) -> Iterator[Tensor]:
    """Logits, [T, V], of the final norm and the head applied to x, some positions at a time."""
    final = network.get_submodule(stack).get_submodule("final")
    for part in torch.split(x, MAX_LOGIT_POSITIONS, dim=1):
        yield network.head(final(part))[0]
