"""Embedding texts of mixed length with MiniLM: from strings to vectors on disk, same texts and threads for everyone.

    python -m bench encoders                    # about 3 minutes
    python -m bench encoders --json > encoders.json
    python -m bench encoders --data sentences.txt --texts 2000 --rounds 3
    python -m bench encoders --try              # a few texts: does every contender run?

Triform in float32 and q8, in float32 with matrices packed by oneDNN instead of its own kernels, sentence-transformers,
and int8 made of the same weights: ONNX Runtime (dynamic), OpenVINO (NNCF, calibrated on other texts). Everyone sorts by
length and reads 32 texts at once, except Triform, which pads nothing. The fastest of several interleaved rounds counts.
Vectors are compared with those of sentence-transformers, so that nobody is fast by being wrong. OMP_NUM_THREADS chooses
the threads of everyone (2 if unset). Needs `triform pull minilm` and the extra `bench`.
"""

import argparse
import contextlib
import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from bench.harness import RESULTS, Contender, Result, limits, mark, race
from bench.tasks import APART, TOGETHER, english, mixed, told

THREADS = int(os.environ.get("OMP_NUM_THREADS", "2"))
CALIBRATED_ON = 128  # texts, none of those that are embedded
LEAST_COSINE = 0.95  # of an int8 vector with its float32 one, on average: below, something is broken
HEADS = 12
Run = Callable[[], Any]


class Sizes(NamedTuple):
    """How many texts, and how often."""

    texts: int
    rounds: int


FULL, TRY = Sizes(texts=500, rounds=4), Sizes(texts=40, rounds=1)


class Racer(NamedTuple):
    """One way to embed: its function here, what it must have installed, and the ratios wanted to others."""

    name: str
    function: str
    settings: dict[str, Any]
    needs: tuple[str, ...] = ()
    environment: dict[str, str] | None = None
    few_bits: bool = False


OURS, OURS_Q8, ONEDNN = "triform float32", "triform q8", "triform float32, oneDNN"
PEER, ONNX, OPENVINO = "sentence-transformers", "ONNX Runtime int8", "OpenVINO int8"
RACERS = (
    Racer(OURS, "embed_with_triform", {"weights": "float32"}),
    Racer(OURS_Q8, "embed_with_triform", {"weights": "q8"}, few_bits=True),
    Racer(ONEDNN, "embed_with_triform", {"weights": "float32"}, environment={"TRIFORM_KERNELS": "off"}),
    Racer(PEER, "embed_with_sentence_transformers", {}, ("sentence_transformers",)),
    Racer(ONNX, "embed_with_onnx_runtime", {}, ("onnx", "onnxruntime"), few_bits=True),
    Racer(OPENVINO, "embed_with_openvino", {}, ("onnx", "openvino", "nncf"), few_bits=True),
)
AIMS = ((OURS, PEER, 1.35), (OURS, ONEDNN, None), (OURS_Q8, PEER, 2.0), (OURS_Q8, ONNX, 1.0), (OURS_Q8, OPENVINO, 1.0))

# --- contenders -----------------------------------------------------------------------------------------------------


def embed_with_triform(folder: str, texts: str, to: str, weights: str) -> Run:
    import numpy as np
    import torch

    import triform

    torch.set_num_threads(THREADS)
    model, read = triform.load(folder, weights=weights), json.loads(Path(texts).read_text())
    return lambda: np.save(to, model.embed(read).numpy())


def embed_with_sentence_transformers(folder: str, texts: str, to: str) -> Run:
    import numpy as np
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(THREADS)
    model, read = SentenceTransformer(folder, device="cpu"), json.loads(Path(texts).read_text())
    return lambda: np.save(to, model.encode(read, batch_size=TOGETHER, show_progress_bar=False))


def embed_with_onnx_runtime(folder: str, texts: str, to: str) -> Run:
    """Attention, norms and GELU fused by its optimizer for BERT, then weights in int8, one scale per output."""
    import numpy as np
    import onnx
    import onnxruntime as ort
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.transformers.optimizer import optimize_model

    place = Path(to).with_suffix("")
    exported, fused, quantized = (str(place.with_suffix(end)) for end in (".onnx", ".fused.onnx", ".int8.onnx"))
    width = export_to_onnx(folder, exported)
    optimized = optimize_model(exported, model_type="bert", num_heads=HEADS, hidden_size=width)
    print("ONNX Runtime fused", optimized.get_fused_operator_statistics(), file=sys.stderr)
    optimized.save_model_to_file(fused)
    kinds = {"DefaultTensorType": onnx.TensorProto.FLOAT}
    quantize_dynamic(fused, quantized, weight_type=QuantType.QInt8, per_channel=True, extra_options=kinds)
    options = ort.SessionOptions()
    options.intra_op_num_threads = THREADS
    session, read = ort.InferenceSession(quantized, options), json.loads(Path(texts).read_text())
    tokenize = make_batches(folder)

    def run() -> None:
        np.save(to, gather(tokenize(read), lambda ids, mask: session.run(None, {"ids": ids, "mask": mask})[0]))

    return run


def embed_with_openvino(folder: str, texts: str, to: str) -> Run:
    """Weights and activations in int8 (NNCF's preset for Transformers), calibrated on other sentences."""
    with contextlib.redirect_stdout(sys.stderr):  # NNCF says much; our answers to the harness go there
        import nncf
        import numpy as np
        import openvino as ov

        exported = str(Path(to).with_suffix(".onnx"))
        export_to_onnx(folder, exported)
        tokenize, others = make_batches(folder), zip(english(first=1), range(CALIBRATED_ON), strict=False)
        examples = [{"ids": ids, "mask": mask} for _, ids, mask in tokenize([text for text, _ in others])]
        quantized = nncf.quantize(
            ov.convert_model(exported), nncf.Dataset(examples), model_type=nncf.ModelType.TRANSFORMER,
            subset_size=len(examples),
        )  # fmt: skip
    request = ov.Core().compile_model(quantized, "CPU", {"INFERENCE_NUM_THREADS": THREADS}).create_infer_request()
    read = json.loads(Path(texts).read_text())

    def run() -> None:
        infer = lambda ids, mask: request.infer({"ids": ids, "mask": mask})["vectors"].copy()  # noqa: E731
        np.save(to, gather(tokenize(read), infer))

    return run


# --- what the int8 contenders share -----------------------------------------------------------------------------------


def make_batches(folder: str) -> Callable[[Sequence[str]], Iterator[tuple[list[int], Any, Any]]]:
    """Texts → (their numbers, ids, mask), sorted by length, padded to the longest of each batch."""
    import numpy as np
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
    tokenizer.enable_truncation(json.loads((Path(folder) / "sentence_bert_config.json").read_text())["max_seq_length"])
    tokenizer.no_padding()

    def batches(texts: Sequence[str]) -> Iterator[tuple[list[int], Any, Any]]:
        found = [one.ids for one in tokenizer.encode_batch(list(texts))]
        order = sorted(range(len(found)), key=lambda at: -len(found[at]))
        for at in range(0, len(order), TOGETHER):
            some = order[at : at + TOGETHER]
            ids = np.zeros((len(some), len(found[some[0]])), np.int64)
            mask = np.zeros_like(ids)
            for row, number in enumerate(some):
                ids[row, : len(found[number])], mask[row, : len(found[number])] = found[number], 1
            yield some, ids, mask

    return batches


def gather(batches: Iterator[tuple[list[int], Any, Any]], infer: Callable[[Any, Any], Any]) -> Any:
    """The vectors in the order of the texts."""
    import numpy as np

    numbers, vectors = zip(*((some, infer(ids, mask)) for some, ids, mask in batches), strict=True)
    return np.concatenate(vectors)[np.argsort(np.concatenate(numbers))]


def export_to_onnx(folder: str, to: str) -> int:
    """MiniLM with mean pooling and a norm of 1, written out, so that every size stays free; returns the width."""
    import warnings

    import torch
    from torch import Tensor, nn
    from transformers import AutoModel

    bert = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()

    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = bert

        def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
            table = self.bert.embeddings
            places = torch.cumsum(torch.ones_like(ids), 1) - 1
            x = table.word_embeddings(ids) + table.token_type_embeddings(torch.zeros_like(ids))
            x = table.LayerNorm(x + table.position_embeddings(places))
            added = (1.0 - mask[:, None, None, :].float()) * -10_000.0
            for layer in self.bert.encoder.layer:
                x = self.read(layer, x, added)
            counted = mask[:, :, None].float()
            return nn.functional.normalize((x * counted).sum(1) / counted.sum(1), dim=-1)

        def read(self, layer: Any, x: Tensor, added: Tensor) -> Tensor:
            own, rows = layer.attention.self, (x.shape[0], x.shape[1], HEADS, x.shape[2] // HEADS)
            q, k, v = (part(x).view(rows).permute(0, 2, 1, 3) for part in (own.query, own.key, own.value))
            scores = torch.matmul(q, k.transpose(-1, -2)) / (x.shape[2] // HEADS) ** 0.5 + added
            mixed = torch.matmul(scores.softmax(-1), v).permute(0, 2, 1, 3).contiguous()
            mixed = mixed.view(x.shape[0], x.shape[1], x.shape[2])
            x = layer.attention.output.LayerNorm(layer.attention.output.dense(mixed) + x)
            inner = nn.functional.gelu(layer.intermediate.dense(x))
            return layer.output.LayerNorm(layer.output.dense(inner) + x)

    ids = torch.randint(1_000, 2_000, (2, 9))
    free = {"ids": {0: "texts", 1: "tokens"}, "mask": {0: "texts", 1: "tokens"}, "vectors": {0: "texts"}}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Pooled(), (ids, torch.ones_like(ids)), to, input_names=["ids", "mask"], output_names=["vectors"],
            dynamic_axes=free, opset_version=17, dynamo=False,
        )  # fmt: skip
    return int(bert.config.hidden_size)


# --- the race ---------------------------------------------------------------------------------------------------------


class Found(NamedTuple):
    """One contender's times and how near its vectors are to those of sentence-transformers."""

    result: Result
    mean_cosine: float
    least_cosine: float
    texts_per_second: float


def find_minilm() -> Path:
    from triform.errors import TriformError
    from triform.weights import model_store

    try:
        return model_store.find_model("minilm")
    except TriformError:
        raise SystemExit("MiniLM is not on this machine; get it with `triform pull minilm`") from None


def is_installed(racer: Racer) -> bool:
    missing = [name for name in racer.needs if importlib.util.find_spec(name) is None]
    if missing:
        print(f"left out: {racer.name} needs {', '.join(missing)}; pip install 'triform[bench]'", file=sys.stderr)
    return not missing


def run_race(folder: Path, texts: Sequence[str], scratch: Path, *, rounds: int) -> dict[str, Found]:
    """Everyone that is installed, by name; vectors that are wrong end it."""
    import numpy as np

    (scratch / "texts.json").write_text(json.dumps(list(texts)))
    same = {"folder": str(folder), "texts": str(scratch / "texts.json")}
    racers = [racer for racer in RACERS if is_installed(racer)]
    places = {racer.name: scratch / f"{at}.npy" for at, racer in enumerate(racers)}
    contenders = [
        Contender(
            racer.name, f"bench.encoders:{racer.function}", environment=racer.environment, to=str(places[racer.name]),
            **same, **racer.settings,
        )
        for racer in racers
    ]  # fmt: skip
    vectors = {name: np.load(place).astype(np.float64) for name, place in places.items()}
    true = vectors.get(PEER, vectors[ONEDNN])
    cosines = {
        name: (x * true).sum(-1) / np.linalg.norm(x, axis=-1) / np.linalg.norm(true, axis=-1)
        for name, x in vectors.items()
    }
    for racer in racers:
        name, apart = racer.name, float(np.abs(vectors[racer.name] - true).max())
        if not (cosines[name].mean() >= LEAST_COSINE if racer.few_bits else apart <= APART):
            raise SystemExit(f"{name}: cosine {cosines[name].mean():.4f}, numbers differ by {apart:.1e}: wrong vectors")
    return {
        one.name: Found(one, cosines[one.name].mean(), cosines[one.name].min(), len(texts) / one.best)
        for one in race(contenders, rounds=rounds)
    }


def compare(found: dict[str, Found]) -> Iterator[tuple[str, str, float, float | None]]:
    """Ours, the peer, how many times as fast ours is, and how many times it should be."""
    for ours, peer, aim in AIMS:
        if peer in found:
            yield ours, peer, found[peer].result.best / found[ours].result.best, aim


def print_tables(found: dict[str, Found], title: str) -> None:
    speeds = Table("who", "best", "median", "texts/s", "cosine: mean", "least", title=title)
    for one in found.values():
        times = (f"{seconds * 1000:,.0f} ms" for seconds in (one.result.best, one.result.median))
        cells = (f"{one.texts_per_second:,.0f}", f"{one.mean_cosine:.6f}", f"{one.least_cosine:.6f}")
        speeds.add_row(one.result.name, *times, *cells)
    ratios = Table("ours", "beside", "ratio", "aim")
    for ours, peer, ratio, aim in compare(found):
        ratios.add_row(ours, peer, f"{ratio:.2f}×", "" if aim is None else f"{aim}×{mark(ratio >= aim)}")
    console = Console(width=140)
    console.print(speeds)
    console.print(ratios)


def main() -> None:
    asking = argparse.ArgumentParser(
        prog="python -m bench encoders", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    asking.add_argument("--try", dest="trying", action="store_true", help="a few texts; nothing is kept")
    asking.add_argument("--data", type=Path, help="sentences, one per line, joined to texts; else the little world's")
    asking.add_argument("--texts", type=int, help=f"how many; default {FULL.texts}")
    asking.add_argument("--rounds", type=int, help=f"of everyone; default {FULL.rounds}")
    asking.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    asked, _ = asking.parse_known_args()
    sizes = TRY if asked.trying else FULL
    folder = find_minilm()
    lines = asked.data.read_text(encoding="utf-8").splitlines() if asked.data else None
    texts, lengths = mixed(folder, asked.texts or sizes.texts, sentences=lines)
    with tempfile.TemporaryDirectory() as scratch:
        found = run_race(folder, texts, Path(scratch), rounds=asked.rounds or sizes.rounds)
    machine = limits()
    title = f"MiniLM, {len(texts):,} texts of {told(lengths)}, {THREADS} threads"
    record = {
        "title": title,
        "tokens": sum(lengths),
        "limits": machine._asdict(),
        "contenders": [one._asdict() | {"result": one.result._asdict()} for one in found.values()],
        "ratios": [dict(zip(("ours", "peer", "ratio", "aim"), one, strict=True)) for one in compare(found)],
    }
    if asked.json:
        print(json.dumps(record, indent=2))
    else:
        print_tables(found, title)
    if not asked.trying:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "encoders.json").write_text(json.dumps(record, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
