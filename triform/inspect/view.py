"""`look`: one pass on the fast road with taps on it, and a `View` of everything that happened.

    view = look(model, "the fat ginger cat sat on a mat")
    q, k, v = view.qkv(3)              # of layer 3
    view.attention(3, head=2)          # tokens × tokens
    view.ledger(3)                     # what was added to the stream, by whom
    view.lens()                        # what each layer would say next

Looking changes nothing: the logits have the same bits as without. Refuses to know pages and commands.
"""

from collections.abc import Collection
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
from triform.inspect import attention_view, module_paths, residual_stream
from triform.inspect.attention_view import ALL, QKV, Asked, Formula
from triform.inspect.decoding_steps import Steps, continued
from triform.inspect.decoding_steps import text as row_of
from triform.inspect.labelled_array import Axis, Labelled
from triform.inspect.module_paths import Kind, StackName
from triform.inspect.taps import Record, ended_behind, recorded
from triform.inspect.token_labels import Given, Tokens, label, target_of, tokens_of
from triform.model import Model
from triform.precision import distance
from triform.spec import ModelSpec
from triform.text.tokenizer import Tokenizer


@torch.no_grad()
def look(
    model: Model,
    text: Given,
    target: Given | None = None,
    *,
    start: int | None = None,
    keep: str = "*",
    until: str | None = None,
) -> "View":
    """One pass over a text, or over ids; in an encoder–decoder over a source and its target.

    A target given as text begins with the token `start`. `keep` says which modules are kept for looking, by path:
    "decoder.blocks.3*" for one layer of a large model. The pass ends behind the module `until`, where one is named:
    "decoder.blocks.3" for nothing of the layers above, nor of the head.
    """
    source, goal = tokens_of(text, model.tokenizer), None
    texts = {next(iter(model.spec.stacks)): source}
    writer = model.tokenizer  # of what the head says
    if model.network.sides == 2:
        writer = None if writer is None else writer.target
        goal = texts["decoder"] = target_of(target, writer, start=start)
    elif target is not None or start is not None:
        raise InputError(f"a target is for encoder-decoders; this model is the form {model.spec.form!r}")
    logits = None
    with recorded(model.network, keep) as record, ended_behind(model.network, until):
        logits = inputs.logits(
            model.network,
            model.spec,
            [source.ids],
            target=None if goal is None else [goal.ids],
            kinds=[source.kinds] if model.spec.embedding.kinds else None,
        )
    return View(model.spec, model.network, writer, texts, record, logits)


@dataclass(frozen=True, eq=False)
class View:
    """What happened in one pass. `stack` means the last one, which the head reads, unless it is named.

    Attention is recomputed when asked for, from exactly what entered the kernel; `.error` of a result is how far that
    is from the kernel's own answer.
    """

    spec: ModelSpec
    network: Form
    tokenizer: Tokenizer | None
    texts: dict[str, Tokens]
    record: Record
    scores: Tensor | None  # what the network said at the end of the pass, untouched; None where it ended earlier

    # --- attention --------------------------------------------------------------------------------------------------

    def qkv(self, layer: int, *, kind: Kind = "self", stack: StackName | None = None) -> QKV:
        """q, k and v of all heads as they entered the kernel: `q, k, v = view.qkv(3)`"""
        return self._asked(layer, None, kind, stack).qkv()

    def attention(
        self,
        layer: int,
        head: int | None = None,
        *,
        kind: Kind = "self",
        stack: StackName | None = None,
        queries: slice = ALL,
        keys: slice = ALL,
    ) -> Labelled:
        """The weights, queries × keys; of all heads, heads × queries × keys, where none is named."""
        asked = self._asked(layer, head, kind, stack)
        found = asked.attention(asked.heads if head is None else [head], queries, keys)
        return found if head is None else found[0]

    def formula(
        self, layer: int, head: int, *, kind: Kind = "self", stack: StackName | None = None, queries: slice = ALL
    ) -> Formula:
        """Every step of one head: q, k, v, scores, mask, masked, weights, mixed."""
        return self._asked(layer, head, kind, stack).formula(head, queries)

    def contributions(
        self, layer: int, *, kind: Kind = "self", stack: StackName | None = None, positions: slice = ALL
    ) -> Labelled:
        """What each head gives to the stream, head_j W_O[j], and the bias: their sum is the output projection."""
        path = module_paths.attention_path(self.network, layer, kind=kind, stack=stack)
        attention = module_paths.attention_at(self.network, path)
        (entered, *_), left = self.record.call(f"{path}.out")
        each = attention_view.contributions(entered[0, positions], attention.out, head_width=attention.head_width)
        heads = Axis("head", (*map(str, range(len(each) - 1)), "bias"))
        axes = heads, self._tokens(stack, positions), Axis.counted("width", self.spec.width)
        error = distance(each.sum(0), left[0, positions].to(each.dtype))
        return Labelled.of(each, axes, title=f"contributions of {path.removesuffix('.f')}", error=error)

    def _asked(self, layer: int, head: int | None, kind: Kind, stack: StackName | None) -> Asked:
        path = module_paths.attention_path(self.network, layer, kind=kind, stack=stack)
        if head is not None:
            module_paths.check_head(self.network, path, head)
        name = module_paths.stack_named(self.network, stack)
        return Asked(
            call=self.record.call(f"{path}.attend"),
            queries=self.texts[name].labels,
            keys=self.texts["encoder" if kind == "cross" else name].labels,
            scale=self.spec.stacks[name].attention.score_scale,
            title=path.removesuffix(".f"),
        )

    # --- the residual stream ------------------------------------------------------------------------------------------

    def stream(self, *, stack: StackName | None = None, positions: slice = ALL) -> Labelled:
        """The vector of each token from its embedding to the final norm: places × tokens × width"""
        walk = self._walk(stack, positions)
        axes = Axis("place", tuple(walk)), self._tokens(stack, positions), Axis.counted("width", self.spec.width)
        return Labelled.of(torch.cat(list(walk.values())), axes, title="residual stream")

    def angles(self, *, stack: StackName | None = None, positions: slice = ALL) -> Labelled:
        """How far each step turned each token's vector, in degrees; lengths are `view.stream().lengths()`."""
        walk = self._walk(stack, positions)
        x = torch.cat(list(walk.values()))
        axes = Axis("place", tuple(walk)[1:]), self._tokens(stack, positions)
        return Labelled.of(residual_stream.angles(x[:-1], x[1:]), axes, title="degrees turned")

    def ledger(self, layer: int, *, stack: StackName | None = None, positions: slice = ALL) -> Labelled:
        """Input, and what attention, cross-attention and feed-forward added; the sum is the block's output.

        Where a norm stands on the stream itself (post-norm), what it did is an entry of its own.
        """
        path = module_paths.block_path(self.network, layer, stack=stack)
        parts = [name for name, _ in self.network.get_submodule(path).named_children()]
        names, added = zip(*residual_stream.ledger(self.record, path, parts, positions), strict=True)
        each = torch.stack(added)
        axes = Axis("entry", names), self._tokens(stack, positions), Axis.counted("width", self.spec.width)
        error = distance(each.sum(0), self.record.call(path).output[0, positions].double())
        return Labelled.of(each, axes, title=f"ledger of {path}", error=error)

    def shares(self, layer: int, *, stack: StackName | None = None, positions: slice = ALL) -> Labelled:
        """How far each entry of the ledger went along the way the stream ended: they sum to the output's length."""
        ledger = self.ledger(layer, stack=stack, positions=positions)
        output = ledger.values.sum(0)
        shares = (ledger.values * (output / np.linalg.norm(output, axis=-1, keepdims=True))).sum(-1)
        return Labelled(f"{ledger.title}: shares of the length", ledger.axes[:-1], shares, None, ledger.error)

    def _walk(self, stack: StackName | None, positions: slice = ALL) -> dict[str, Tensor]:
        """The stream at every place, each [1, T, D]"""
        name = module_paths.stack_named(self.network, stack)
        layers = range(self.spec.stacks[name].layers)
        paths = {"entry": f"{name}.entry"} | {f"block {i}": f"{name}.blocks.{i}" for i in layers}
        paths["final"] = f"{name}.final"
        token = self.record.of("token")[list(self.texts).index(name)].output
        walk = {"token": token} | {place: self.record.call(path).output for place, path in paths.items()}
        return {place: x[:, positions] for place, x in walk.items()}

    # --- words --------------------------------------------------------------------------------------------------------

    @cached_property
    def logits(self) -> Tensor:
        """The network's own, untouched; of a pass that ended before the head, made now from the last vectors."""
        if self.scores is not None:
            return self.scores
        final = self.record.call(f"{self._last}.final").output
        with torch.no_grad():
            return self.network.head(self.network.pick(row_of(self.network, self.answering.ids), final))

    def said(self, position: int) -> Tensor:
        """The head's scores at one position alone, which does not need those of all others."""
        final = self.record.call(f"{self._last}.final").output
        with torch.no_grad():
            return self.network.head(final[:, position, None])[0, 0]

    def next(self, k: int = 10, *, position: int = -1, place: str | None = None) -> Labelled:
        """The k likeliest next tokens after a position; from an earlier place of the stream ("block 3") if named."""
        residual_stream.check_speaks(self.spec)
        count = len(self.answering.ids)
        if not -count <= position < count:
            raise InputError(f"position {position} is not in this text; its positions are 0 to {count - 1}")
        if place is None:
            return self.likeliest(self.logits[0, position], k)
        walk = self._walk(None)
        if place not in walk:
            raise InputError(f"place={place!r} is not in this model; its places are {', '.join(walk)}")
        x = walk[place][:, position, None]
        return self.likeliest(next(residual_stream.said(self.network, self._last, x))[0], k)

    def lens(self, *, positions: slice = ALL) -> Labelled:
        """What each layer would say next, were it the last: the likeliest token and its probability, places × tokens

        Each place costs a head over the whole vocabulary; `positions` narrows it.
        """
        residual_stream.check_speaks(self.spec)
        walk = {place: x for place, x in self._walk(None, positions).items() if place not in ("token", "final")}
        chances, words = [], []
        for x in walk.values():
            for logits in residual_stream.said(self.network, self._last, x):
                best = logits.max(dim=-1)
                chances.append((best.values - logits.logsumexp(dim=-1)).exp())
                words += [self.label(id) for id in best.indices.tolist()]
        axes = Axis("place", tuple(walk)), Axis("token", self.answering.labels[positions])
        shape = [len(axis.labels) for axis in axes]
        table = np.array(words, dtype=object).reshape(shape)
        return Labelled.of(torch.cat(chances).view(shape), axes, title="what each layer would say next", words=table)

    def likeliest(self, logits: Tensor, k: int) -> Labelled:
        """softmax(logits), the k largest of it"""
        if not 1 <= k <= len(logits):
            raise InputError(f"k={k} tokens cannot be shown; use 1 to {len(logits)}")
        best = logits.double().softmax(dim=-1).topk(k)
        words = tuple(self.label(id) for id in best.indices.tolist())
        return Labelled.of(best.values, [Axis("token", words)], title="next token")

    def steps(self, count: int = 8, *, k: int = 10, ends: Collection[int] = ()) -> Steps:
        """A greedy continuation with a cache: what might come next at each step, what was computed and what was read.

        It ends at the tokenizer's end or at one of `ends`. The network runs as it is now, interventions included.
        """
        residual_stream.check_speaks(self.spec)
        own = {self.tokenizer.eos} if self.tokenizer is not None and self.tokenizer.eos is not None else set()
        return continued(self, count=count, k=k, ends=own | set(ends))

    def label(self, id: int) -> str:
        return label(id, self.tokenizer)

    # --- everything else ----------------------------------------------------------------------------------------------

    def read(self, path: str) -> Labelled:
        """What left any module, by its path: `view.read("decoder.blocks.3.feedforward.f.up")`"""
        output = self.record.call(path).output
        if not isinstance(output, Tensor):
            raise InputError(f"{path!r} gives {type(output).__name__}, no array; it is in view.record")
        axes = [Axis.counted(f"axis {i}", size) for i, size in enumerate(output.shape[1:])]
        name = "encoder" if path.endswith(".cross.f.kv") else path.split(".")[0]
        tokens = self.texts.get(name, self.answering).labels
        if len(axes) > 1 and len(axes[-2].labels) == len(tokens):
            axes[-2] = Axis("token", tokens)
        return Labelled.of(output[0], axes, title=path)

    def plain(self) -> dict[str, Any]:
        """What there is to look at: tokens, and layers and heads of every stack."""
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
        return msgspec.json.encode(self.plain()).decode()

    def save(self, path: str | Path) -> None:
        """A safetensors file with what left every kept module, by its path, and the tokens as metadata."""
        outputs = {path: calls[-1].output for path, calls in self.record.calls.items() if path}
        outputs |= {} if self.scores is None else {"logits": self.scores}
        tensors = {path: x for path, x in outputs.items() if isinstance(x, Tensor)}
        write_tensors(path, tensors, metadata={"view": self.to_json()})

    def __repr__(self) -> str:
        counts = ", ".join(f"{name} {len(tokens.ids)} tokens" for name, tokens in self.texts.items())
        return f"View({self.spec.form}: {counts})"

    @property
    def dtype(self) -> str:
        return str(self.network.token.weight.dtype).removeprefix("torch.")

    @property
    def answering(self) -> Tokens:
        """The text whose next tokens the head says: the target, where there is one."""
        return self.texts[self._last]

    @property
    def _last(self) -> str:
        return module_paths.stack_named(self.network, None)

    def _tokens(self, stack: StackName | None, positions: slice) -> Axis:
        return Axis("token", self.texts[module_paths.stack_named(self.network, stack)].labels[positions])
