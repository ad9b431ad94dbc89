"""Builds what is released into dist/, and tries it: `make dist`.

A source archive, a wheel with the native kernels of this platform, and a wheel for every platform without them. Each is
checked by twine and check-wheel-contents, and each wheel is installed into an empty environment, where a model answers:
with and without kernels the same tokens. From the wheel with kernels, `triform demo --quick` runs too. At last the
versions of everything installed are written as a software bill of materials.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
WITHOUT_KERNELS = {"TRIFORM_KERNELS": "off"}
PACKAGES = ("triform", "triform_lectures", "little_world")
MODEL = "mini-decoder"  # large enough for the native road
MAX_DIFFERENCE = 1e-3  # of a token's log-probability, between the two roads
QUESTION = f"""
import json, triform
model = triform.build(triform.families.named({MODEL!r}), seed=0)
steps = list(model.stream([5, 6, 7], max_tokens=24, temperature=0))
print(json.dumps({{"tokens": [step.token for step in steps], "logprobs": [step.logprob for step in steps]}}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-demo", action="store_true", help="leave out `triform demo --quick`")
    asked = parser.parse_args()
    shutil.rmtree(DIST, ignore_errors=True)
    build_distributions()
    files = sorted(DIST.iterdir())
    run(sys.executable, "-m", "twine", "check", "--strict", *files)
    wheels = [path for path in files if path.suffix == ".whl"]
    # W004 and W102: the kernels are libraries without Python, found by path
    run(
        sys.executable, "-m", "check_wheel_contents", "--ignore", "W004,W102", "--toplevel", ",".join(PACKAGES), *wheels
    )
    answers = {}
    with tempfile.TemporaryDirectory(prefix="triform-dist-") as folder:
        for wheel in wheels:
            python = install(wheel, Path(folder) / wheel.stem)
            answers[wheel.name] = ask(python, cwd=Path(folder))
            if not wheel.stem.endswith("none-any"):
                write_bill_of_materials(python)
                if not asked.no_demo:
                    run(python, "-m", "triform", "demo", "--quick", "--out", Path(folder) / "demo", cwd=Path(folder))
    compare(answers)
    for path in sorted(DIST.iterdir()):
        print(f"{path.stat().st_size / 1e6:8.2f} MB  {path.relative_to(ROOT)}")


def build_distributions() -> None:
    run(sys.executable, "-m", "build", "--outdir", DIST, ROOT)
    run(sys.executable, "-m", "build", "--wheel", "--outdir", DIST, ROOT, environment=WITHOUT_KERNELS)


def install(wheel: Path, folder: Path) -> Path:
    """The Python of an empty environment with the wheel, its requirements as they were tested together."""
    print(f"installing {wheel.name} into an empty environment", flush=True)
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--constraint",
        ROOT / "constraints.txt", wheel)  # fmt: skip
    return python


def ask(python: Path, *, cwd: Path) -> dict[str, Any]:
    """What the installed package says of its kernels, and a model's tokens; no compiler is found."""
    environment = {"TRIFORM_HOME": str(cwd / "home"), "CXX": "no-compiler-here"}
    doctor = json.loads(run(python, "-m", "triform", "doctor", "--json", cwd=cwd, environment=environment))
    answer: dict[str, Any] = json.loads(run(python, "-c", QUESTION, cwd=cwd, environment=environment))
    return answer | {"kernels": doctor["kernels"]}


def compare(answers: dict[str, dict[str, Any]]) -> None:
    """All wheels choose the same tokens, with nearly the same probabilities."""
    (name, first), *others = answers.items()
    print(f"{name}: kernels {first['kernels']}, tokens {first['tokens']}")
    for other, answer in others:
        difference = max(abs(a - b) for a, b in zip(first["logprobs"], answer["logprobs"], strict=True))
        print(f"{other}: kernels {answer['kernels']}, the same tokens: {answer['tokens'] == first['tokens']}, "
              f"log-probabilities differ by at most {difference:.1e}")  # fmt: skip
        if answer["tokens"] != first["tokens"] or difference > MAX_DIFFERENCE:
            sys.exit(f"{other} and {name} answer differently")


def write_bill_of_materials(python: Path) -> None:
    """What an installation consists of, in CycloneDX's format."""
    run(sys.executable, "-m", "cyclonedx_py", "environment", "--output-file", DIST / "sbom.cdx.json", python)


def run(*command: str | Path, cwd: Path = ROOT, environment: dict[str, str] | None = None) -> str:
    """Standard output of a command, shown too where it is long work; the first one that fails ends all."""
    words = [str(part) for part in command]
    done = subprocess.run(words, cwd=cwd, env=os.environ | (environment or {}), stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(words)}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


if __name__ == "__main__":
    main()
