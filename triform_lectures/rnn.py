"""What attention replaced: a recurrent encoder-decoder (GRU), with Bahdanau's attention and without it.

It has the interface of the other forms (`encode`, `decode`, `hidden`, `head`), so the same loop, objectives and data
train it. It is not parallel: each position needs the state of the one before.
"""

from collections.abc import Iterator
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from triform.core.forms import Network, TokenTable
from triform.core.output_heads import TiedHead
from triform.core.texts import Pair, Text
from triform.shapes import BTD


class EncodedSource(NamedTuple):
    """An encoded source: one state per word, which of them are not padding, and the last state."""

    states: Tensor  # [B, S, D]
    real: Tensor  # [B, S]
    last: Tensor  # [B, D]


class DecoderStep(NamedTuple):
    """One target word: the state used as query, the context it found, the next state. [B, D] each"""

    query: Tensor
    context: Tensor
    state: Tensor


class LastState(nn.Module):
    """The whole source is one vector, the same at every step: the bottleneck that attention was invented for."""

    def __init__(self, width: int) -> None:
        super().__init__()

    def make_keys(self, read: EncodedSource) -> Tensor:
        return read.states

    def forward(self, state: Tensor, keys: Tensor, read: EncodedSource) -> Tensor:
        return read.last


class Bahdanau(nn.Module):
    """context = Σ softmax(vᵀ tanh(W s + U h_j)) h_j (Bahdanau 2014)"""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.w = nn.Linear(width, width, bias=False)
        self.u = nn.Linear(width, width)
        self.v = nn.Linear(width, 1, bias=False)

    def make_keys(self, read: EncodedSource) -> Tensor:
        """U h_j, once for all steps."""
        return self.u(read.states)

    def weights(self, state: Tensor, keys: Tensor, read: EncodedSource) -> Tensor:
        scores = self.v(torch.tanh(self.w(state)[:, None] + keys))[..., 0]
        return scores.masked_fill(~read.real, float("-inf")).softmax(-1)

    def forward(self, state: Tensor, keys: Tensor, read: EncodedSource) -> Tensor:
        return torch.einsum("bs,bsd->bd", self.weights(state, keys, read), read.states)


class Recurrent(Network):
    """hidden = decode(target, encode(source)), one position after another"""

    sides = 2

    def __init__(self, *, vocab: int, width: int, attention: bool, seed: int = 0) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            token = TokenTable(vocab, width)
            nn.init.normal_(token.weight)  # drawn first, as torch's own embedding is
            super().__init__(token, TiedHead(scale=1.0), lambda text, x: x)
            self.reader = nn.GRU(width, width // 2, bidirectional=True, batch_first=True)
            self.context = Bahdanau(width) if attention else LastState(width)
            self.begin = nn.Linear(width, width)
            self.cell = nn.GRUCell(2 * width, width)
            self.out = nn.Linear(2 * width, width)
            nn.init.normal_(self.token.weight, std=width**-0.5)

    def encode(self, source: Text) -> EncodedSource:
        rows, lengths = pad_rows(source)
        packed = pack_padded_sequence(self.token(rows), lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, last = self.reader(packed)
        found, _ = pad_packed_sequence(states, batch_first=True)
        real = torch.arange(rows.shape[1], device=rows.device) < lengths[:, None]
        return EncodedSource(found, real, torch.cat((last[0], last[1]), dim=-1))

    def decode_steps(self, rows: Tensor, read: EncodedSource) -> Iterator[DecoderStep]:
        x, state, keys = self.token(rows), torch.tanh(self.begin(read.last)), self.context.make_keys(read)
        for step in range(rows.shape[1]):
            asked, context = state, self.context(state, keys, read)
            state = self.cell(torch.cat((x[:, step], context), dim=-1), asked)
            yield DecoderStep(asked, context, state)

    def decode(self, target: Text, read: EncodedSource) -> BTD:
        rows, lengths = pad_rows(target)
        outs = [self.out(torch.cat((step.state, step.context), dim=-1)) for step in self.decode_steps(rows, read)]
        y = torch.tanh(torch.stack(outs, dim=1))
        if not target.lengths:
            return y
        return torch.cat([row[:length] for row, length in zip(y, lengths.tolist(), strict=True)])[None]

    def hidden(self, pair: Pair) -> BTD:
        return self.decode(pair.target, self.encode(pair.source))

    def forward(self, pair: Pair) -> Tensor:
        return self.head(self.hidden(pair))


@torch.no_grad()
def align(network: Recurrent, pair: Pair) -> Tensor:
    """Bahdanau's weights for one pair, target words × source words; of a network that has them"""
    attend = cast(Bahdanau, network.context)
    read = network.encode(pair.source)
    keys = attend.make_keys(read)
    asked = [step.query for step in network.decode_steps(pair.target.ids, read)]
    return torch.cat([attend.weights(state, keys, read) for state in asked])


def pad_rows(text: Text) -> tuple[Tensor, Tensor]:
    """One text per row, padded with 0, and the lengths; packed texts are split."""
    if not text.lengths:
        return text.ids, torch.full((len(text.ids),), text.ids.shape[1], device=text.ids.device)
    parts = torch.split(text.ids[0], list(text.lengths))
    return pad_sequence(list(parts), batch_first=True), torch.tensor(text.lengths, device=text.ids.device)
