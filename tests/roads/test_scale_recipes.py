"""Every recipe of docs/scale.md, run by the program it is for: the merged answers are those of one run."""

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from slurm_cluster import run_slurm
from tiny_tasks import SCORED, begun

from triform.cli import main
from triform.cli.shards import Shard
from triform.tasks import get_task
from triform.tasks.embed import EmbedTask
from triform.weights import model_folder

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
ROWS, SHARDS = 40, 3
WORDS = ("Jack", "Rose", "Florence", "loves", "hates", "London", "Rome", "Paris")


def write_rows(path: Path, count: int) -> None:
    """Texts of several lengths, a blank line among them now and then."""
    with path.open("w") as file:
        for row in range(count):
            words = (WORDS[(row * 7 + at * (1 + row % 3)) % len(WORDS)] for at in range(1 + row % 9))
            file.write(("" if row % 13 == 5 else " ".join(words)) + "\n")


def run_main(*given: object) -> int:
    try:
        main([str(each) for each in given])
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, rows, and the answers of one run."""
    folder = tmp_path_factory.mktemp("prepared")
    model_folder.write(folder / "minilm", model=begun(get_task("embed"), SCORED))
    write_rows(folder / "rows.txt", ROWS)
    assert run_main("embed", folder / "minilm", "--file", folder / "rows.txt", "--out", folder / "whole.jsonl") == 0
    return folder


@pytest.fixture
def work(prepared: Path, tmp_path: Path) -> Path:
    """A folder as the recipes expect it, `triform` on the path and `deploy/` beside it."""
    for name in ("minilm", "rows.txt"):
        (tmp_path / name).symlink_to(prepared / name)
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    (tmp_path / "bin").mkdir()
    shim = tmp_path / "bin" / "triform"
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} -m triform "$@"\n')
    shim.chmod(shim.stat().st_mode | stat.S_IXUSR)
    return tmp_path


def read_recipe(word: str, language: str = "bash") -> str:
    """The block of the document that has a word, with fewer shards."""
    blocks = re.findall(rf"```{language}\n(.*?)```", (ROOT / "docs" / "scale.md").read_text(encoding="utf-8"), re.S)
    (found,) = [block for block in blocks if word in block]
    return found.replace("N=8", f"N={SHARDS}")


def run_recipe(script: str, work: Path, **more: str) -> None:
    env = os.environ | {"PATH": f"{work / 'bin'}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1", **more}
    command = ["bash", "-euo", "pipefail", "-c", script]
    done = subprocess.run(command, cwd=work, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def check_whole(work: Path, prepared: Path) -> None:
    assert (work / "vectors.jsonl").read_bytes() == (prepared / "whole.jsonl").read_bytes()


# --- the recipes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("program", ["xargs", "parallel"])
def test_on_one_machine(work: Path, prepared: Path, program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    run_recipe(read_recipe(f"| {program}"), work)
    check_whole(work, prepared)


def test_a_slurm_array(work: Path, prepared: Path) -> None:
    with tempfile.TemporaryDirectory() as folder, run_slurm(Path(folder)) as env:
        run_recipe(
            read_recipe("sbatch"), work, **env | {"PATH": f"{work / 'bin'}:{env['PATH']}"}, SBATCH_ARRAY_INX="0-2"
        )
    check_whole(work, prepared)


def test_a_kubernetes_indexed_job(work: Path, prepared: Path) -> None:
    """The manifest fits the schema; the command of its pods is run here, with the index that Kubernetes would give."""
    yaml = pytest.importorskip("yaml")
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    assert "kubernetes-job.yaml" in read_recipe("kubectl wait")
    job = yaml.safe_load((ROOT / "deploy" / "kubernetes-job.yaml").read_text(encoding="utf-8"))
    validate.validate(job, validate.latest_version(), strict=True)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert {"name": "SHARDS", "value": str(job["spec"]["completions"])} in container["env"]
    assert [each["mountPath"] for each in container["volumeMounts"]] == ["/models", "/data"]
    command = container["command"][-1].replace("/models", ".").replace("/data", ".")
    for index in range(SHARDS):
        run_recipe(command, work, SHARDS=str(SHARDS), JOB_COMPLETION_INDEX=str(index))
    run_recipe("triform merge vectors.jsonl part*.jsonl", work)
    check_whole(work, prepared)


START_RAY = """
import sys
import ray
try:
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
except Exception as error:
    print(error)
    sys.exit(75)
"""
KILL_WORKER = """
import json, os, signal
from pathlib import Path
from triform.pipeline import ray_rows

class Fragile(ray_rows.TaskActor):
    def __call__(self, batch):
        marker = Path("killed")
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(batch)

ray_rows.TaskActor = Fragile
rows = ray.data.read_text("rows.txt", drop_empty_lines=True)
found = ray_rows.answer_dataset(rows, "embed", "minilm", processes=2, batch_rows=8, dimensions=4).take_all()
Path("found.json").write_text(json.dumps([[row["text"], row["vector"].tolist()] for row in found]))
"""


def test_ray_data(work: Path, prepared: Path) -> None:
    """The recipe itself, then once with a worker that is killed: every row, in order."""
    pytest.importorskip("ray", reason="the extra ray is not installed")
    pq = pytest.importorskip("pyarrow.parquet")
    recipe = read_recipe("answer_dataset", "python")
    (work / "run.py").write_text(START_RAY + recipe + KILL_WORKER)
    environment = os.environ | {"HOME": str(work), "OMP_NUM_THREADS": "1", "RAY_raylet_start_wait_time_s": "120"}
    done = subprocess.run(
        [sys.executable, "run.py"], cwd=work, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode == 75:
        pytest.skip(f"Ray does not start on this machine: {done.stdout.strip()[-200:]}")
    assert done.returncode == 0, done.stdout + done.stderr
    texts = [line for line in (work / "rows.txt").read_text().splitlines() if line]
    whole = [json.loads(line) for line in (prepared / "whole.jsonl").read_text().splitlines()]
    vectors = [row["vector"] for row in whole if "vector" in row]
    table = pq.read_table(work / "vectors").to_pydict()
    assert table["text"] == texts
    for found, vector in zip(table["vector"], vectors, strict=True):
        assert found == pytest.approx(vector, abs=1e-6)
    assert (work / "killed").exists()
    assert [text for text, _ in json.loads((work / "found.json").read_text())] == texts


# --- killed and resumed -----------------------------------------------------------------------------------------------


def embed_shard(work: Path, shard: Shard, *, dies_after: int) -> int:
    """In a process of its own, which is killed after so many answers; how it ended."""
    child = os.fork()
    if not child:
        try:
            real = EmbedTask.run

            def run(self: Any, *given: Any, **named: Any) -> Iterator[Any]:
                for number, answer in enumerate(real(self, *given, **named)):
                    if number == dies_after:
                        os.kill(os.getpid(), signal.SIGKILL)
                    yield answer

            EmbedTask.run = run  # type: ignore[method-assign]
            given = ("embed", work / "minilm", "--file", work / "rows.txt", "--resume", "--shard", shard)
            os._exit(run_main(*given, "--out", work / f"part{shard.number}.jsonl"))
        except BaseException:
            os._exit(99)
    return os.waitpid(child, 0)[1]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("count", [1, 3, 7])
def test_killed_shards_go_on(work: Path, prepared: Path, count: int) -> None:
    """Every other shard is killed in its first run, and once more in its second."""
    for number in range(count):
        shard = Shard(number, count)
        for dies_after in (3, 1) if number % 2 == 0 else ():
            assert os.WTERMSIG(embed_shard(work, shard, dies_after=dies_after)) == signal.SIGKILL
            assert not (work / f"part{number}.jsonl").exists()
        assert embed_shard(work, shard, dies_after=-1) == 0
    parts = [work / f"part{number}.jsonl" for number in range(count)]
    assert run_main("merge", work / "vectors.jsonl", *parts) == 0
    check_whole(work, prepared)


# --- a large file -----------------------------------------------------------------------------------------------------

LARGE = int(os.environ.get("TRIFORM_LARGE_ROWS", "100000"))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_memory_is_flat(work: Path) -> None:
    """A file of 100,000 rows takes as much memory as one of a tenth; rows per second are printed."""
    peaks = []
    for rows in (LARGE // 10, LARGE):
        path = work / f"{rows}.txt"
        write_rows(path, rows)
        began = time.monotonic()
        command = [sys.executable, "-c", MEASURED, "embed", str(work / "minilm"), "--file", str(path)]
        done = subprocess.run(
            [*command, "--out", str(work / f"{rows}.jsonl")], capture_output=True, text=True, check=True
        )
        seconds = time.monotonic() - began
        peaks.append(int(done.stdout) // 1024)
        with (work / f"{rows}.jsonl").open() as answers:
            assert sum(1 for _ in answers) == rows
        print(f"{rows:,} rows: {rows / seconds:,.0f} rows/s with the start, peak {peaks[-1]:,} MiB")
    assert peaks[1] < peaks[0] + 40


MEASURED = """
import resource, sys
from triform.cli import main
try:
    main(sys.argv[1:])
except SystemExit as stop:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    sys.exit(stop.code)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
