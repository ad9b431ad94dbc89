"""The native products: beside their slow twins, and the same bits alone, among others, and on every instruction set."""

import hashlib
import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from torch.nn import functional as F

from triform.errors import TriformError
from triform.kernels import build_library, instruction_sets, library
from triform.kernels.library import VARIABLE, KernelLibrary, load_kernels
from triform.kernels.operations import ACTIVATIONS
from triform.kernels.packed_matrix import PackedMatrix
from triform.kernels.quantize import quantize_activations
from triform.weight_kinds import KINDS, WeightKind

USABLE = [each.name for each in instruction_sets.find_usable_sets()] if build_library.find_compiler() else []
pytestmark = pytest.mark.skipif(not USABLE, reason="no C++ compiler, or no kernels for this processor")
SHAPES = [(1, 1), (16, 32), (37, 77), (130, 301)]


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def library_named(name: str) -> KernelLibrary:
    found = load_kernels(name).library
    assert found is not None
    return found


def products(matrix: PackedMatrix, x: torch.Tensor, bias: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
    """The product by every library of this processor."""
    with pytest.MonkeyPatch.context() as patch:
        results = {}
        for name in USABLE:
            patch.setenv(VARIABLE, name)
            results[name] = matrix.matmul(x, bias)
        return results


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def same(results: dict[str, torch.Tensor]) -> torch.Tensor:
    first, *others = results.values()
    assert all(torch.equal(first.nan_to_num(nan=7.0), other.nan_to_num(nan=7.0)) for other in others)
    return first


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_row_has_the_same_bits_among_others_on_any_threads_and_instructions(
    shape: tuple[int, int], kind: WeightKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix, bias = PackedMatrix.from_float(numbers(*shape), kind=kind), numbers(shape[0])
    x = numbers(65, shape[1])
    whole = same(products(matrix, x, bias))
    torch.testing.assert_close(whole, matrix.matmul_in_torch(x, bias), atol=1e-5 * float(whole.abs().max()), rtol=1e-5)
    for name, threads in itertools.product(USABLE, (1, 2, 4)):
        monkeypatch.setenv(VARIABLE, name)
        torch.set_num_threads(threads)
        for rows in (1, 2, 3, 5, 8, 13, 64):
            assert torch.equal(matrix.matmul(x[1 : 1 + rows], bias), whole[1 : 1 + rows]), (name, threads, rows)


@hypothesis_settings(max_examples=30)
@given(
    outputs=st.integers(1, 70), inputs=st.integers(1, 200), rows=st.integers(0, 20),
    kind=st.sampled_from(KINDS), seed=st.integers(0, 99),
)  # fmt: skip
def test_random_shapes(outputs: int, inputs: int, rows: int, kind: WeightKind, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    matrix = PackedMatrix.from_float(torch.randn(outputs, inputs, generator=random), kind=kind)
    x = torch.randn(rows, inputs, generator=random)
    got = same(products(matrix, x))
    torch.testing.assert_close(got, matrix.matmul_in_torch(x), atol=1e-4, rtol=1e-5)


# --- whole numbers are exact ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inputs", [32, 96, 320])
def test_whole_numbers_are_added_exactly_at_their_largest(inputs: int) -> None:
    """No instruction may saturate: codes of −128 and 127 times activations of ±127, in every order of signs."""
    outputs = 16
    codes = torch.full((outputs, inputs), 127, dtype=torch.int8)
    codes[::2] = -128
    codes[3, ::3] = -127
    scales = torch.ones(outputs, inputs // 32, dtype=torch.float16)
    x = torch.full((3, inputs), 127.0)
    x[1, 1::2] = -127.0
    x[2] = -127.0
    want = x.long() @ codes.long().T
    matrix = PackedMatrix.from_codes(codes, scales, kind="q8")
    assert torch.equal(same(products(matrix, x)).long(), want)
    assert torch.equal(matrix.matmul_in_torch(x).long(), want)
    four = PackedMatrix.from_codes((codes & 15).to(torch.uint8), scales, -scales, kind="q4")
    assert torch.equal(same(products(four, x)).long(), x.long() @ ((codes & 15).long() - 1).T)


# The edges of what float32 and the rounding to 8 bits can hold; group by group.
EDGES = {
    "zeros": torch.zeros(64),
    "negative zeros": torch.full((64,), -0.0),
    "denormals": torch.full((64,), 1e-42),
    "smallest normals": torch.linspace(-2e-38, 2e-38, 64),
    "at the smallest scale": torch.linspace(-1, 1, 64) * 2.0**-119,
    "largest": torch.linspace(-3.4e38, 3.4e38, 64),
    "halves": torch.arange(64).float() - 31.5,
    "NaN": torch.tensor([*[1.0] * 40, float("nan"), *[2.0] * 23]),
    "infinity": torch.tensor([*[1.0] * 7, float("-inf"), *[2.0] * 56]),
}


@pytest.mark.parametrize("name", EDGES)
def test_activations_are_rounded_as_in_the_reference(name: str) -> None:
    x = EDGES[name]
    want = quantize_activations(x)
    for each in USABLE:
        codes, scales = torch.empty(64, dtype=torch.int8), torch.empty(2)
        sums = torch.empty(2, dtype=torch.int32)
        library_named(each).quantize(x.data_ptr(), 1, 64, codes.data_ptr(), scales.data_ptr(), sums.data_ptr())
        assert torch.equal(codes, want.codes)
        assert torch.equal(scales.nan_to_num(nan=-1.0), want.scales.nan_to_num(nan=-1.0))
        assert sums.tolist() == codes.view(2, 32).long().sum(-1).tolist()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", EDGES)
def test_edges_come_out_as_such_and_harm_no_neighbour(name: str, kind: WeightKind) -> None:
    matrix, x = PackedMatrix.from_float(numbers(20, 64), kind=kind), numbers(6, 64)
    clean = same(products(matrix, x))
    x[2] = EDGES[name]
    got = same(products(matrix, x))
    others = [0, 1, 3, 4, 5]
    assert torch.equal(got[others], clean[others])
    assert bool(got[2].isfinite().all()) == (name not in ("NaN", "infinity", "largest")) or name == "largest"
    if name in ("zeros", "negative zeros"):
        assert not got[2].any()


def test_groups_of_zeros_and_the_largest_scales() -> None:
    weight = numbers(5, 96)
    weight[:, 32:64] = 0
    weight[1, :32] = 65_000.0
    for kind in ("q8", "q4"):
        matrix, x = PackedMatrix.from_float(weight, kind=kind), numbers(4, 96)
        got = same(products(matrix, x))
        torch.testing.assert_close(got, matrix.matmul_in_torch(x), atol=1e-2, rtol=1e-5)
        x[:, 32:64] = 1e6  # meets zeros alone
        torch.testing.assert_close(same(products(matrix, x)), got, atol=0.0, rtol=0.0)


# --- functions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_those_of_torch(name: str) -> None:
    x = torch.cat([torch.linspace(-12, 12, 4001), torch.tensor([0.0, -0.0, 1e-30, -1e-6, 90.0, -90.0, 300.0, -300.0])])
    x = F.pad(x, (0, -len(x) % 16))
    wide = x.double()
    want = {
        "identity": wide, "relu": wide.relu(), "gelu": F.gelu(wide), "gelu-tanh": F.gelu(wide, approximate="tanh"),
        "silu": F.silu(wide), "tanh": wide.tanh(),
    }[name]  # fmt: skip
    results = {}
    for each in USABLE:
        got = results[each] = x.clone()
        library_named(each).activate(ACTIVATIONS[name], got.data_ptr(), len(got))
        torch.testing.assert_close(got.double(), want, atol=3e-7, rtol=1e-6)
    same(results)
    bad = torch.full((16,), float("nan"))
    library_named(USABLE[0]).activate(ACTIVATIONS[name], bad.data_ptr(), 16)
    assert bad.isnan().all()


# --- choosing, and doing without ------------------------------------------------------------------------------------


def test_without_the_library_torch_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix, x = PackedMatrix.from_float(numbers(33, 70), kind="q4"), numbers(5, 70)
    fast = matrix.matmul(x)
    monkeypatch.setenv(VARIABLE, "off")
    assert library.find_kernels() is None
    assert "switched off" in library.find_loaded_kernels().reason
    torch.testing.assert_close(matrix.matmul(x), fast, atol=1e-4, rtol=1e-5)


def test_unknown_instructions_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "avx2048")
    with pytest.raises(TriformError, match="avx2048") as refused:
        library.find_kernels()
    assert "portable" in str(refused.value)


def test_a_compiler_that_fails_is_reported_once_with_its_first_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text(
        "#!/bin/sh\n[ $1 = --version ] && echo 1 && exit\necho 'x.h:3: error: no such thing' >&2\nexit 1\n"
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("TRIFORM_HOME", str(tmp_path / "home"))
    load_kernels.cache_clear()
    try:
        for _ in range(2):
            assert library.find_kernels() is None
    finally:
        monkeypatch.undo()
        load_kernels.cache_clear()
    assert capsys.readouterr().err.count("x.h:3: error: no such thing") == 1
    assert not list((tmp_path / "home").rglob("*.so"))


def test_only_what_the_processor_has_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    monkeypatch.setattr(instruction_sets, "CPU_INFO", info)
    monkeypatch.setattr(instruction_sets, "find_machine", lambda: "x86_64")
    for flags, best in (("sse2", "portable"), ("avx2 fma f16c bmi1 bmi2 movbe", "avx2"), ("avx2 fma", "portable")):
        info.write_text(f"processor : 0\nflags : fpu {flags}\n")
        assert instruction_sets.find_usable_sets()[0].name == best


def test_libraries_of_other_sources_are_refused(tmp_path: Path) -> None:
    """The sizes of the structures are compared before anything is called."""
    source, target = tmp_path / "other.cpp", tmp_path / "other.so"
    source.write_text('extern "C" long triform_operation_bytes() { return 8; }')
    subprocess.run(
        [*(build_library.find_compiler() or ()), "-shared", "-fPIC", str(source), "-o", str(target)], check=True
    )
    with pytest.raises(OSError, match="other sources"):
        KernelLibrary(target, "avx2")


# --- longer proofs ----------------------------------------------------------------------------------------------------

PROOF = Path(__file__).parent / "proof.cpp"
STATIC = ("-std=c++17", "-ffp-contract=off", "-pthread", "-w", f"-I{build_library.SOURCES}")


def run_proof(folder: Path, compiler: str, *flags: str, runner: tuple[str, ...] = ()) -> str:
    program = folder / "proof"
    build_library.run_compiler([compiler, *STATIC, *flags, str(PROOF), "-o", str(program)])
    environment = os.environ | {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "halt_on_error=1"}
    done = subprocess.run([*runner, str(program)], capture_output=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    results = np.frombuffer(done.stdout, dtype=np.float32)
    assert len(results) > 10_000
    assert np.isfinite(results).all()
    return hashlib.sha256(done.stdout).hexdigest()


@pytest.mark.slow
def test_all_builds_print_the_same_bytes(tmp_path: Path) -> None:
    """Also AVX-VNNI's code by AVX-512's instructions of that width, and NEON's under an emulator."""
    compiler = (build_library.find_compiler() or [""])[0]
    want = run_proof(tmp_path, compiler, "-O1", "-DTRIFORM_PORTABLE")
    for each in instruction_sets.find_usable_sets():
        assert run_proof(tmp_path, compiler, "-O3", *each.flags) == want, each.name
    if "avx512vnni" in USABLE:
        narrow = ("-march=x86-64-v3", "-mavx512vl", "-mavx512vnni", "-DTRIFORM_NARROW")
        assert run_proof(tmp_path, compiler, "-O3", *narrow) == want


@pytest.mark.slow
def test_another_processor_prints_the_same_bytes(tmp_path: Path) -> None:
    cross, emulator = shutil.which("aarch64-linux-gnu-g++"), shutil.which("qemu-aarch64")
    if cross is None or emulator is None:
        pytest.skip("needs g++-aarch64-linux-gnu and qemu-user")
    want = run_proof(tmp_path, (build_library.find_compiler() or [""])[0], "-O1", "-DTRIFORM_PORTABLE")
    runner = (emulator, "-cpu", "max")
    for flags in (("-march=armv8.2-a+dotprod",), ("-DTRIFORM_PORTABLE",)):
        assert run_proof(tmp_path, cross, "-O3", "-static", *flags, runner=runner) == want, flags


@pytest.mark.slow
def test_sanitizers_find_nothing(tmp_path: Path) -> None:
    compiler = (build_library.find_compiler() or [""])[0]
    for each in instruction_sets.find_usable_sets():
        run_proof(
            tmp_path, compiler, "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", *each.flags
        )
