"""Random damage to headers, indexes and configs: our error every time, or a model that fits its file.

The address space is capped while these run, so a size taken on trust from a file would show as a MemoryError.
"""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tiny_folders import CLASSIFIER, GPT2, LLAMA, saved

from triform.core import inputs
from triform.errors import TriformError
from triform.families import t5
from triform.weights.model_folder import read

T5 = t5(vocab=11, width=8, layers=2, heads=2, head_width=4, context=16)
SPECS = {"bert": CLASSIFIER, "gpt2": GPT2, "llama": LLAMA, "t5": T5}
ONE, INDEX = "model.safetensors", "model.safetensors.index.json"

FUZZ = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=60)
LONG = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=5_000)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("fuzz")
    found = {name: saved(root / name, spec) for name, spec in SPECS.items()}
    return found | {"shards": saved(root / "shards", GPT2, shard_bytes=2000)}


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    resource = pytest.importorskip("resource")
    status = Path("/proc/self/statm")
    if not status.exists():
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_AS)
    now = int(status.read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + (512 << 20), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def survives(path: Path, *, answers: bool = False) -> None:
    """Our error, short and on one line; or a model whose numbers all came from the file, and which still answers."""
    said = ""
    try:
        loaded = read(path)
    except TriformError as error:
        said = str(error)
    assert len(said) < 4000
    assert "\n" not in said
    if said or not (path / ONE).exists():
        return
    numbers = sum(x.numel() for x in loaded.network.state_dict().values())
    assert numbers <= (path / ONE).stat().st_size // 2
    if answers:
        target = [[1]] if loaded.spec.form == "encoder-decoder" else None
        assert bool(inputs.compute_logits(loaded.network, loaded.spec, [[1, 2, 3]], target=target).isfinite().all())


class Damaged:
    """A file of a folder, damaged and afterwards mended."""

    def __init__(self, file: Path, data: bytes) -> None:
        self.file, self.data, self.before = file, data, file.read_bytes()

    def __enter__(self) -> None:
        self.file.write_bytes(self.data)

    def __exit__(self, *_: object) -> None:
        self.file.write_bytes(self.before)


# --- bytes ------------------------------------------------------------------------------------------------------------

Edit = tuple[float, str, bytes]
edits = st.lists(
    st.tuples(st.floats(0, 1), st.sampled_from(["put", "insert", "cut"]), st.binary(min_size=1, max_size=9)),
    min_size=1,
    max_size=4,
)


def damage(data: bytes, edits: list[Edit]) -> bytes:
    for where, how, what in edits:
        at = int(where * len(data))
        after = {"put": at + len(what), "insert": at, "cut": len(data)}[how]
        data = data[:at] + (b"" if how == "cut" else what) + data[after:]
    return data


def bytes_survive(folders: dict[str, Path], name: str, file: str, edits: list[Edit], part: float) -> None:
    path = folders[name] / file
    data = path.read_bytes()
    cut = max(1, int(part * len(data)))
    with Damaged(path, damage(data[:cut], edits) + data[cut:]):
        survives(folders[name])


@FUZZ
@given(edits, st.floats(0, 1))
def test_bytes_of_a_tensor_file(folders: dict[str, Path], edits: list[Edit], part: float) -> None:
    bytes_survive(folders, "gpt2", ONE, edits, part)


@FUZZ
@given(edits)
def test_bytes_of_an_index(folders: dict[str, Path], edits: list[Edit]) -> None:
    bytes_survive(folders, "shards", INDEX, edits, 1.0)


@FUZZ
@given(st.sampled_from(sorted(SPECS)), edits)
def test_bytes_of_a_config(folders: dict[str, Path], name: str, edits: list[Edit]) -> None:
    bytes_survive(folders, name, "config.json", edits, 1.0)


@FUZZ
@given(st.binary(max_size=300))
@example(b"")
@example(struct.pack("<Q", 2) + b"{}")
@example(struct.pack("<Q", 60) + b'{"a":{"dtype":"F32","shape":[1e999],"data_offsets":[0,4]}}  ')
def test_any_bytes_as_a_tensor_file(folders: dict[str, Path], data: bytes) -> None:
    with Damaged(folders["gpt2"] / ONE, data):
        survives(folders["gpt2"])


# --- values -----------------------------------------------------------------------------------------------------------

numbers = st.integers(-3, 40) | st.sampled_from([2**31, 2**40, 2**63, 2**64, 10**30, 10**400, 1e-300, 0.5, -0.0, 1e308])
words = st.text(max_size=12) | st.sampled_from(["gelu", "relu", "yarn", "default", "sliding_attention", "x" * 5000])
ropes = st.fixed_dictionaries(
    {"rope_type": st.sampled_from(["default", "linear", "llama3", "yarn", "dynamic"])},
    optional={
        name: numbers | st.none()
        for name in ("rope_theta", "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings",
                     "beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim", "truncate")
    },
)  # fmt: skip
values = st.recursive(
    st.none() | st.booleans() | numbers | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)


def config_survives(folders: dict[str, Path], name: str, changes: list[tuple[float, Any]]) -> None:
    file = folders[name] / "config.json"
    said = json.loads(file.read_text())
    fields = [
        *said,
        "rope_scaling",
        "rope_theta",
        "rope_parameters",
        "id2label",
        "num_labels",
        "layer_types",
        "head_dim",
        "bos_token_id",
    ]
    for where, value in changes:
        said[fields[int(where * (len(fields) - 1))]] = value
    with Damaged(file, json.dumps(said).encode()):
        survives(folders[name], answers=True)


@FUZZ
@given(st.sampled_from(["rope_scaling", "rope_parameters"]), ropes)
def test_any_values_in_a_rope(folders: dict[str, Path], field: str, rope: dict[str, Any]) -> None:
    file = folders["llama"] / "config.json"
    said = json.loads(file.read_text())
    said = {name: value for name, value in said.items() if not name.startswith("rope")} | {field: rope}
    with Damaged(file, json.dumps(said).encode()):
        survives(folders["llama"], answers=True)


changes = st.lists(st.tuples(st.floats(0, 1), values), min_size=1, max_size=3)


@FUZZ
@given(st.sampled_from(sorted(SPECS)), changes)
def test_any_values_in_a_config(folders: dict[str, Path], name: str, changes: list[tuple[float, Any]]) -> None:
    config_survives(folders, name, changes)


def header_survives(folders: dict[str, Path], where: float, field: str, value: Any) -> None:
    file = folders["gpt2"] / ONE
    data = file.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    said = json.loads(data[8 : 8 + length])
    name = sorted(said)[int(where * (len(said) - 1))]
    if field == "itself":
        said[name] = value
    else:
        said[name][field] = value
    head = json.dumps(said).encode()
    with Damaged(file, struct.pack("<Q", len(head)) + head + data[8 + length :]):
        survives(folders["gpt2"])


@FUZZ
@given(st.floats(0, 1), st.sampled_from(["dtype", "shape", "data_offsets", "itself"]), values)
def test_any_values_in_a_header(folders: dict[str, Path], where: float, field: str, value: Any) -> None:
    header_survives(folders, where, field, value)


@FUZZ
@given(st.dictionaries(words, words | values, max_size=4), values)
def test_any_values_in_an_index(folders: dict[str, Path], where: dict[str, Any], more: Any) -> None:
    said = {"weight_map": where, "metadata": more}
    with Damaged(folders["shards"] / INDEX, json.dumps(said).encode()):
        survives(folders["shards"])


@pytest.mark.parametrize(
    "file", ["generation_config.json", "modules.json", "manifest.json", "sentence_bert_config.json"]
)
@settings(FUZZ, max_examples=25)
@given(value=values | st.dictionaries(st.sampled_from(["made_by", "files", "eos_token_id", "top_p"]), values))
def test_any_values_in_the_small_files(folders: dict[str, Path], file: str, value: Any) -> None:
    path = folders["llama"] / file
    path.write_text(json.dumps(value))
    try:
        survives(folders["llama"])
    finally:
        path.unlink()


# --- as large as a file may be --------------------------------------------------------------------------------------


def test_a_header_full_of_tiny_tensors_costs_little(folders: dict[str, Path]) -> None:
    """Nearly the most entries a header may have are refused for what they are, within the memory allowed above; more
    are refused before they are decoded."""
    for count, says in ((16_000, "16000 left over"), (70_000, "more than 16,384 tensors")):
        entry = '"%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'
        head = ("{" + ",".join(entry % i for i in range(count)) + "}").encode()
        damaged = Damaged(folders["gpt2"] / ONE, struct.pack("<Q", len(head)) + head)
        with damaged, pytest.raises(TriformError, match=says):
            read(folders["gpt2"])


def test_a_name_as_long_as_a_header(folders: dict[str, Path]) -> None:
    head = json.dumps({"x" * 3_000_000: {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}).encode()
    with Damaged(folders["gpt2"] / ONE, struct.pack("<Q", len(head)) + head):
        survives(folders["gpt2"])


@pytest.mark.slow
@settings(LONG)
@given(st.sampled_from(sorted(SPECS)), changes)
def test_many_values_in_a_config(folders: dict[str, Path], name: str, changes: list[tuple[float, Any]]) -> None:
    config_survives(folders, name, changes)


@pytest.mark.slow
@settings(LONG)
@given(st.floats(0, 1), st.sampled_from(["dtype", "shape", "data_offsets", "itself"]), values)
def test_many_values_in_a_header(folders: dict[str, Path], where: float, field: str, value: Any) -> None:
    header_survives(folders, where, field, value)


@pytest.mark.slow
@settings(LONG)
@given(edits, st.floats(0, 1))
def test_many_bytes_of_a_tensor_file(folders: dict[str, Path], edits: list[Edit], part: float) -> None:
    bytes_survive(folders, "gpt2", ONE, edits, part)
