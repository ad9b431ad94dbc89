"""Our own GGUF reader: equal to the gguf package to the bit, and safe with files that lie about themselves."""

import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from triform.errors import TriformError
from triform.weights.gguf_blocks import BLOCK_TYPES, UNREAD_TYPES
from triform.weights.gguf_file import GgufFile

gguf_package = pytest.importorskip("gguf")


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def string(key: str, value: str) -> bytes:
    return text(key) + struct.pack("<I", 8) + text(value)


def info(name: str, *, shape: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def header(*, tensors: int = 0, pairs: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, pairs)


def opened(path: Path, data: bytes) -> GgufFile:
    path.write_bytes(data)
    file = GgufFile.open(path)
    file.check_tensors()
    return file


# --- equal to the package ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", BLOCK_TYPES)
def test_every_block_type_dequantizes_to_the_package_s_numbers(number: int) -> None:
    """Random bytes reach every field of a block, infinite and missing scales too."""
    ours, theirs = BLOCK_TYPES[number], gguf_package.GGMLQuantizationType(number)
    assert (ours.name, (ours.values, ours.size)) == (theirs.name, gguf_package.GGML_QUANT_SIZES[theirs])
    blocks = np.random.default_rng(number).integers(0, 256, (97, ours.size), dtype=np.uint8)
    with np.errstate(all="ignore"):
        wanted = gguf_package.quants.dequantize(blocks, theirs).astype(np.float32).reshape(-1)
        np.testing.assert_array_equal(ours.dequantize(blocks).reshape(-1), wanted)


def test_types_that_cannot_be_read_have_their_names() -> None:
    for number, name in UNREAD_TYPES.items():
        assert gguf_package.GGMLQuantizationType(number).name == name


def write_every_kind(path: Path) -> None:
    writer = gguf_package.GGUFWriter(str(path), "llama")
    writer.add_uint8("u8", 200)
    writer.add_int8("i8", -3)
    writer.add_uint16("u16", 40_000)
    writer.add_int16("i16", -4)
    writer.add_uint32("u32", 4_000_000_000)
    writer.add_int32("i32", -5)
    writer.add_uint64("u64", 2**63)
    writer.add_int64("i64", -(2**40))
    writer.add_float32("f32", 0.5)
    writer.add_float64("f64", 0.1)
    writer.add_bool("bool", True)
    writer.add_string("text", "größe")
    writer.add_array("numbers", [1, 2, 3])
    writer.add_array("floats", [0.5, 0.25])
    writer.add_array("words", ["a", "", "ß"])
    writer.add_array("bools", [True, False])
    rng = np.random.default_rng(0)
    writer.add_tensor("plain", rng.normal(size=(3, 5)).astype(np.float32))
    quant = gguf_package.GGMLQuantizationType.Q8_0
    data = gguf_package.quants.quantize(rng.normal(size=(4, 64)).astype(np.float32), quant)
    writer.add_tensor("quantised", data, raw_dtype=quant)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_metadata_and_tensors_are_the_package_s(tmp_path: Path) -> None:
    write_every_kind(tmp_path / "m.gguf")
    ours, theirs = GgufFile.open(tmp_path / "m.gguf"), gguf_package.GGUFReader(str(tmp_path / "m.gguf"))
    ours.check_tensors()
    wanted = {name: field.contents() for name, field in theirs.fields.items() if not name.startswith("GGUF.")}
    assert {n: v.tolist() if isinstance(v, np.ndarray) else v for n, v in ours.metadata.items()} == wanted
    for tensor in theirs.tensors:
        got = ours.tensors[tensor.name]
        assert got.shape == tuple(reversed(tensor.shape.tolist()))
        np.testing.assert_array_equal(got.view_blocks().reshape(-1), tensor.data.view(np.uint8).reshape(-1))
        wanted_numbers = gguf_package.quants.dequantize(tensor.data, tensor.tensor_type)
        np.testing.assert_array_equal(got.dequantize(), wanted_numbers)


def test_a_long_tensor_is_dequantized_piece_by_piece_to_the_same_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_every_kind(tmp_path / "m.gguf")
    whole = GgufFile.open(tmp_path / "m.gguf").tensors["quantised"].dequantize()
    monkeypatch.setattr("triform.weights.gguf_file.MAX_VALUES_AT_ONCE", 96)
    np.testing.assert_array_equal(GgufFile.open(tmp_path / "m.gguf").tensors["quantised"].dequantize(), whole)


# --- files that lie ---------------------------------------------------------------------------------------------------

LIES = {
    "version is 1": header(version=1) + bytes(40),
    "big-endian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0) + bytes(40),
    "ends behind the file": header(pairs=1) + struct.pack("<Q", 2**62) + b"key",
    "type 77": header(pairs=1) + text("key") + struct.pack("<I", 77) + bytes(40),
    "array of arrays": header(pairs=1) + text("key") + struct.pack("<IIQ", 9, 9, 1) + bytes(40),
    "behind the file, which": header(pairs=1) + text("key") + struct.pack("<IIQ", 9, 8, 2**58) + bytes(40),
    "header ends behind": header(pairs=1) + text("key") + struct.pack("<IIQ", 9, 4, 2**61) + bytes(40),
    "'key' twice": header(pairs=2) + 2 * string("key", "x"),
    "not UTF-8": header(pairs=1) + text("key") + struct.pack("<IQ", 8, 1) + b"\xff",
    "general.alignment is 0": header(pairs=1) + text("general.alignment") + struct.pack("<II", 4, 0),
    "9 axes": header(tensors=1) + info("x", shape=(1,) * 9),
    "tensor 'x' twice": header(tensors=2) + 2 * info("x", shape=(1,)),
    "is cut off: 'x' ends at byte": header(tensors=1) + info("x", shape=(2**40, 2**40)) + bytes(64),
    "is cut off": header(tensors=1) + info("x", shape=(4,), offset=2**63) + bytes(64),
    "Q4_0 cannot store": header(tensors=1) + info("x", shape=(31,), kind=2) + bytes(64),
    "cannot store": header(tensors=1) + info("x", shape=(0, 5)) + bytes(64),
    "GGUF type IQ2_XXS.*llama-quantize": header(tensors=1) + info("x", shape=(256,), kind=16) + bytes(640),
    "GGUF type number 99": header(tensors=1) + info("x", shape=(256,), kind=99) + bytes(640),
    "does not begin with GGUF": b"PK\x03\x04" + bytes(40),
}


@pytest.mark.parametrize("says", LIES)
def test_a_file_that_lies_is_refused_in_one_line(tmp_path: Path, says: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(TriformError, match=says) as refused:
            opened(tmp_path / "m.gguf", LIES[says])
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert "\n" not in str(refused.value)


def test_damaged_bytes_give_an_answer_or_one_line(tmp_path: Path) -> None:
    write_every_kind(tmp_path / "m.gguf")
    data, rng = (tmp_path / "m.gguf").read_bytes(), np.random.default_rng(0)
    refused = 0
    for _ in range(400):
        damaged = bytearray(data)
        for at in rng.integers(0, len(data), 3):
            damaged[at] = rng.integers(256)
        try:
            file = opened(tmp_path / "damaged.gguf", bytes(damaged))
            with np.errstate(all="ignore"):
                for tensor in file.tensors.values():
                    tensor.dequantize()
        except TriformError:
            refused += 1
    assert 50 < refused < 400


def test_what_is_no_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(TriformError, match="No such file"):
        GgufFile.open(tmp_path / "none.gguf")
    with pytest.raises(TriformError, match="Is a directory"):
        GgufFile.open(tmp_path)
    (tmp_path / "empty.gguf").write_bytes(b"")
    with pytest.raises(TriformError, match="does not begin with GGUF"):
        GgufFile.open(tmp_path / "empty.gguf")
