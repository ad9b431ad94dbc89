"""What only a process of its own can show: checks under `python -O`, files that are opened, memory at its peak."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tiny_folders import GPT2, edit, edit_tensor, model, saved

from triform.families import gpt2
from triform.parameters import count_parameters
from triform.weights.model_folder import write

CHILD = """
import json, os, sys
from triform.errors import TriformError
from triform.weights.model_folder import read

assert False, "assertions are off"
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
said = {}
for folder in sys.argv[1:]:
    opened.clear()
    try:
        read(folder)
        said[folder] = ["loaded"]
    except TriformError as error:
        said[folder] = [str(error)]
    code = (".py", ".pyc", ".so")
    said[folder] += [name for name in opened if not name.isdigit() and not name.endswith(code)]
print(json.dumps(said))
"""


def run(*args: str, child: str) -> str:
    done = subprocess.run([sys.executable, "-O", "-c", child, *args], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def hostile(root: Path) -> dict[str, tuple[Path, str]]:
    """One folder for each check, and the words its refusal must have."""
    secret = root / "secret"
    saved(secret)
    made = {name: saved(root / name) for name in ("index", "link", "pickle", "cut", "nan", "tie", "shape", "config")}
    made["hash"] = saved(root / "hash", manifest=True)
    (made["index"] / "model.safetensors").unlink()
    where = {"weight_map": {"transformer.wte.weight": "../secret/model.safetensors"}}
    (made["index"] / "model.safetensors.index.json").write_text(json.dumps(where))
    (made["link"] / "model.safetensors").unlink()
    (made["link"] / "model.safetensors").symlink_to("../secret/model.safetensors")
    (made["pickle"] / "model.safetensors").rename(made["pickle"] / "pytorch_model.bin")
    (made["cut"] / "model.safetensors").write_bytes((made["cut"] / "model.safetensors").read_bytes()[:-1])
    edit_tensor(made["nan"], "transformer.ln_f.bias", lambda x: x * torch.nan)
    edit_tensor(made["tie"], "lm_head.weight", lambda x: torch.ones(11, 8))
    edit_tensor(made["shape"], "transformer.ln_f.bias", lambda x: torch.ones(9))
    edit(made["config"], lambda config: config.update(n_layer=2**16))
    (made["hash"] / "config.json").write_text((made["hash"] / "config.json").read_text() + " ")
    words = {
        "index": "may name only", "link": "leads out", "pickle": "can run code", "cut": "damaged", "nan": "NaN",
        "tie": "differ in the files", "shape": "wrong shape", "config": "65536 layers",
        "hash": "not as it was written",
    }  # fmt: skip
    return {name: (path, words[name]) for name, path in made.items()}


def test_every_check_holds_without_assertions_and_nothing_outside_is_opened(tmp_path: Path) -> None:
    folders = hostile(tmp_path)
    said = json.loads(run(*(str(path) for path, _ in folders.values()), child=CHILD))
    for name, (path, words) in folders.items():
        message, *opened = said[str(path)]
        assert words in message, name
        assert opened, name
        assert all(Path(file).is_relative_to(path) for file in opened), (name, opened)


PEAK = """
import sys
from pathlib import Path
import torch
from triform.weights.model_folder import read

def peak():
    return next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)

read(sys.argv[1])
Path("/proc/self/clear_refs").write_text("5")
before = peak()
read(sys.argv[2])
print((peak() - before) * 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak of memory is measured through /proc")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_peak_of_a_load_is_the_model_and_a_little(tmp_path: Path, dtype: torch.dtype) -> None:
    spec = gpt2(vocab=4000, width=512, layers=8, heads=8, context=64)
    saved(tmp_path / "tiny", GPT2)
    write(tmp_path / "large", model=model(spec), dtype=dtype)
    (tmp_path / "large" / "manifest.json").unlink()
    grown = int(run(str(tmp_path / "tiny"), str(tmp_path / "large"), child=PEAK))
    assert 4 * count_parameters(spec) > 100e6
    assert grown < 4 * count_parameters(spec) + (16 << 20)
