"""One forward pass, and one training step, against transformers: same shapes, same threads, one run.

`make bench`, or `.venv/bin/python -m bench.forward`
"""

from collections.abc import Callable
from typing import Any

from bench.harness import Contender, Row, limits, race, report

ROUNDS = 5
Run = Callable[[], Any]

# --- ours -----------------------------------------------------------------------------------------------------------


def _ours(name: str) -> Any:
    import torch

    import triform

    torch.set_num_threads(2)
    return triform.build(triform.families.named(name))


def ours_prefill(tokens: int, every: bool) -> Run:
    """The prompt read into a cache and the next token's scores; or the scores of every position."""
    import torch

    from triform.core.packed_linear import pack_network
    from triform.core.texts import Text

    model = _ours("gpt2-small")
    network = pack_network(model.network)  # as generating reads a prompt
    ids = torch.randint(0, 50_000, (1, tokens))

    @torch.no_grad()
    def run() -> None:
        x = network.decode(Text.of(ids), model.cache(capacity=tokens))
        network.head(x if every else x[:, -1:])

    return run


def ours_encoder(rows: int, tokens: int) -> Run:
    import torch

    ids = torch.randint(0, 30_000, (rows, tokens))
    return _encoding(ids, torch.ones_like(ids, dtype=torch.bool))


def ours_mixed() -> Run:
    return _encoding(*mixed_lengths())


def _encoding(ids: Any, keep: Any) -> Run:
    """As the encoder tasks run: through the door, with packed matrices."""
    import torch

    from triform.core import inputs
    from triform.core.packed_linear import pack_network

    model = _ours("bert-base")
    network = pack_network(model.network)

    @torch.no_grad()
    def run() -> None:
        inputs.compute_logits(network, model.spec, ids, keep=keep)

    return run


def ours_training(rows: int, tokens: int) -> Run:
    import torch
    from torch.nn import functional as F

    from triform.core.texts import Text

    model = _ours("gpt2-small")
    network = model.network.train()
    ids = torch.randint(0, 50_000, (rows, tokens + 1))

    def run() -> None:
        x = network.hidden(Text.of(ids[:, :-1]))
        weight = network.readout.weight(network.token.weight)
        chunks = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=256)
        loss = F.linear_cross_entropy(
            network.readout.ready(x).flatten(0, 1), weight, ids[:, 1:].flatten(), options=chunks
        )
        loss.backward()
        network.zero_grad(set_to_none=True)

    return run


# --- transformers ---------------------------------------------------------------------------------------------------


def _theirs(kind: str) -> Any:
    import torch
    import transformers

    torch.set_num_threads(2)
    transformers.logging.set_verbosity_error()
    if kind == "gpt2":
        return transformers.GPT2LMHeadModel(transformers.GPT2Config()).eval()
    return transformers.BertModel(transformers.BertConfig()).eval()


def their_prefill(tokens: int, every: bool) -> Run:
    import torch

    model = _theirs("gpt2")
    ids = torch.randint(0, 50_000, (1, tokens))

    @torch.no_grad()
    def run() -> None:
        model(ids, use_cache=True, logits_to_keep=0 if every else 1)

    return run


def their_encoder(rows: int, tokens: int) -> Run:
    import torch

    model = _theirs("bert")
    ids = torch.randint(0, 30_000, (rows, tokens))

    @torch.no_grad()
    def run() -> None:
        model(ids)

    return run


def their_mixed() -> Run:
    import torch

    model = _theirs("bert")
    ids, keep = mixed_lengths()

    @torch.no_grad()
    def run() -> None:
        model(ids, attention_mask=keep.long())

    return run


def their_training(rows: int, tokens: int) -> Run:
    import torch

    model = _theirs("gpt2").train()
    ids = torch.randint(0, 50_000, (rows, tokens))

    def run() -> None:
        model(ids, labels=ids).loss.backward()
        model.zero_grad(set_to_none=True)

    return run


def mixed_lengths() -> tuple[Any, Any]:
    """64 texts of 5 to 256 tokens, padded on the right."""
    import torch

    lengths = torch.randint(5, 257, (64,), generator=torch.Generator().manual_seed(0))
    lengths[0] = 256
    keep = torch.arange(256) < lengths[:, None]
    return torch.randint(1, 30_000, (64, 256)), keep


# --- the race -------------------------------------------------------------------------------------------------------


def pair(ours: str, theirs: str, *, rounds: int = ROUNDS, **settings: Any) -> tuple[Any, Any]:
    contenders = [
        Contender("triform", f"bench.forward:{ours}", **settings),
        Contender("transformers", f"bench.forward:{theirs}", **settings),
    ]
    first, second = race(contenders, rounds=rounds)
    return first, second


def main() -> None:
    layer = 12 * 12 * 768 * 768 * 2  # operations a token in GPT-2 small's and BERT-base's matrices
    head = 2 * 768 * 50_257
    rows = [
        Row(
            "GPT-2 small, prefill 512",
            *pair("ours_prefill", "their_prefill", tokens=512, every=False),
            aim=1.5,
            work=512 * layer + 12 * 4 * 512 * 512 * 768 + head,
        ),
        Row(
            "GPT-2 small, 512, all logits",
            *pair("ours_prefill", "their_prefill", tokens=512, every=True),
            aim=1.0,
            work=512 * (layer + head) + 12 * 4 * 512 * 512 * 768,
        ),
        Row(
            "BERT-base, 8 × 128",
            *pair("ours_encoder", "their_encoder", rows=8, tokens=128),
            aim=1.1,
            work=1024 * layer + 12 * 4 * 8 * 128 * 128 * 768,
        ),
        Row(
            "BERT-base, 64 texts of 5–256",
            *pair("ours_mixed", "their_mixed", rounds=3),
            aim=1.8,
            work=int(mixed_lengths()[1].sum()) * layer,
        ),
        Row(
            "GPT-2 small, training step 4 × 256",
            *pair("ours_training", "their_training", rows=4, tokens=256),
            aim=1.1,
            work=3 * (1024 * (layer + head) + 12 * 4 * 4 * 256 * 256 * 768),
            memory_matters=True,
        ),
    ]
    report("forward", rows, limits())


if __name__ == "__main__":
    main()
