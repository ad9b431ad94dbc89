"""A Slurm of this machine alone, from Debian's slurm-wlm: a controller and one node, started and ended by a test."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PATIENCE = 60.0
CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
AuthType=auth/none
CredType=cred/none
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""


@contextmanager
def run_slurm(folder: Path) -> Iterator[dict[str, str]]:
    """The environment in which `sbatch` reaches the cluster."""
    if any(shutil.which(name) is None for name in ("slurmctld", "slurmd", "sbatch")):
        pytest.skip("Slurm is not installed (Debian: slurm-wlm)")
    if os.geteuid() != 0:
        pytest.skip("slurmd needs root")
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    ports = find_free_ports(2)
    host = socket.gethostname().partition(".")[0]
    said = CONFIG.format(folder=folder, host=host, controller=ports[0], node=ports[1], cpus=os.cpu_count())
    (folder / "slurm.conf").write_text(said)
    env = os.environ | {"SLURM_CONF": str(folder / "slurm.conf")}
    daemons = [subprocess.Popen([name, "-D"], env=env, stderr=subprocess.DEVNULL) for name in ("slurmctld", "slurmd")]
    try:
        wait_until_idle(env, folder)
        yield env
    finally:
        for daemon in daemons:
            daemon.terminate()
        for daemon in daemons:
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def find_free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def wait_until_idle(env: dict[str, str], folder: Path) -> None:
    """Until the node is there."""
    until = time.monotonic() + PATIENCE
    while True:
        said = subprocess.run(["sinfo", "-h", "-o", "%T"], env=env, capture_output=True, text=True, check=False)
        if said.stdout.strip() == "idle":
            return
        if time.monotonic() > until:
            logs = "".join(path.read_text() for path in folder.glob("*.log"))
            raise AssertionError(f"the node is {said.stdout.strip()!r} {said.stderr}\n{logs[-3000:]}")
        time.sleep(0.1)
