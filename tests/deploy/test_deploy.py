"""The files of `deploy/`: the manifest fits Kubernetes' schemas, the image copies what the wheel needs, and HAProxy
keeps its promises before two real servers, each in a network namespace of its own."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from served_models import decoder

from triform.generate.api import complete
from triform.weights import model_folder
from triform.weights.model_hash import hash_model

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
KEY, PATIENCE = "key-of-the-test", 90.0
CLIENTS, TOKENS = 4, 40
PROMPTS = ("the fat", "a mole", "lions eat", "apples and", "the cat")

# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_manifest_fits_the_schemas() -> None:
    yaml = pytest.importorskip("yaml")
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    documents = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8")))
    kinds = [document["kind"] for document in documents]
    assert kinds == ["Deployment", "Service", "PodDisruptionBudget", "HorizontalPodAutoscaler"]
    version = validate.latest_version()
    for document in documents:
        validate.validate(document, version, strict=True)
    wrong = documents[0] | {"spec": documents[0]["spec"] | {"replica": 2}}  # the control
    with pytest.raises(validate.ValidationError):
        validate.validate(wrong, version, strict=True)


def test_the_manifest_names_what_there_is() -> None:
    """The port and paths of the image, probes that the server has, a metric that it exports."""
    manifest, image = (DEPLOY / "kubernetes.yaml").read_text(), (DEPLOY / "Dockerfile").read_text()
    assert "EXPOSE 8000" in image
    assert "containerPort: 8000" in manifest
    assert "/ready" in manifest
    assert "/health" in manifest
    assert "num_requests_waiting" in (ROOT / "triform" / "serve" / "http" / "metrics.py").read_text()
    user = re.search(r"--uid (\d+)", image)
    assert user is not None
    assert f"runAsUser: {user[1]}" in manifest
    for text in (image, manifest):
        assert "/run/secrets" in text


def test_the_image_copies_what_the_wheel_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    text = (DEPLOY / "Dockerfile").read_text()
    copied = {name for line in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.M) for name in line.split()}
    assert {*wheel["packages"], wheel["hooks"]["custom"]["path"], "pyproject.toml", "constraints.txt"} <= copied
    assert all((ROOT / name).exists() for name in copied)
    extras = re.search(r"/src\[([a-z,]+)\]", text)
    assert extras is not None
    assert set(extras[1].split(",")) <= project["project"]["optional-dependencies"].keys()


# --- two servers in two namespaces, one proxy -------------------------------------------------------------------------


class Server:
    """`triform serve` in a network namespace of its own."""

    def __init__(self, name: str, number: int, model: Path) -> None:
        self.name, self.space, self.model = name, f"triform-{os.getpid()}-{name}", model
        self.cable, self.address = f"tf{os.getpid() % 100000}{name[0]}", f"10.213.{number}.2"
        self.process: subprocess.Popen[bytes] | None = None
        inner = f"{self.cable}i"
        for command in (
            f"ip netns add {self.space}",
            f"ip link add {self.cable} type veth peer name {inner} netns {self.space}",
            f"ip addr add 10.213.{number}.1/24 dev {self.cable}",
            f"ip link set {self.cable} up",
            f"ip -n {self.space} addr add {self.address}/24 dev {inner}",
            f"ip -n {self.space} link set {inner} up",
            f"ip -n {self.space} link set lo up",
        ):
            subprocess.run(command.split(), check=True)

    def start(self) -> None:
        given = [str(self.model), "--host", "0.0.0.0", "--port", "8000", "--api-key", KEY, "--allow-host", "*"]
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", self.space, sys.executable, "-m", "triform", "serve", *given],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stderr=subprocess.DEVNULL,
        )  # `ip netns exec` becomes the server itself

    def end(self, number: signal.Signals) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.send_signal(number)
            self.process.wait(PATIENCE)

    def plug(self, *, plugged: bool) -> None:
        subprocess.run(["ip", "link", "set", self.cable, "up" if plugged else "down"], check=True)

    def remove(self) -> None:
        self.end(signal.SIGKILL)
        subprocess.run(["ip", "netns", "del", self.space], check=False)
        subprocess.run(["ip", "link", "del", self.cable], check=False, stderr=subprocess.DEVNULL)


class Answered(NamedTuple):
    """One request as its client saw it; `error` is empty where all came."""

    began: float
    ended: float
    text: str
    error: str


class Cluster:
    """Two servers behind HAProxy with the file of `deploy/`."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.servers = {name: Server(name, number, model) for number, name in enumerate(("one", "two"), start=1)}
        self.socket, self.port = folder / "admin.sock", find_free_port()
        text = (DEPLOY / "haproxy.cfg").read_text().replace("127.0.0.1:8080", f"127.0.0.1:{self.port}")
        for number, server in enumerate(self.servers.values(), start=1):
            text = text.replace(f"10.0.0.{number}:8000", f"{server.address}:8000")
        (folder / "haproxy.cfg").write_text(text)
        (folder / "admin.cfg").write_text(f"global\n    stats socket {self.socket} level admin\n")
        files = ["-f", str(folder / "admin.cfg"), "-f", str(folder / "haproxy.cfg")]
        env = os.environ | {"TRIFORM_API_KEY": KEY}
        checked = subprocess.run(["haproxy", "-c", *files], env=env, capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stderr
        self.proxy = subprocess.Popen(
            ["haproxy", "-db", *files], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for server in self.servers.values():
            server.start()
        for name in self.servers:
            self.wait_for(name, "UP")

    def command(self, text: str) -> str:
        with socket.socket(socket.AF_UNIX) as admin:
            admin.settimeout(PATIENCE)
            admin.connect(str(self.socket))
            admin.sendall(text.encode() + b"\n")
            return b"".join(iter(lambda: admin.recv(65536), b"")).decode()

    def read_state(self, name: str) -> str:
        for line in self.command("show stat").splitlines():
            cells = line.split(",")
            if cells[:2] == ["models", name]:
                return cells[17]
        raise AssertionError(f"no server {name}")

    def wait_for(self, name: str, state: str) -> float:
        """Until the proxy takes the server for up or down; how long that took."""
        began = time.monotonic()
        while True:
            with suppress(FileNotFoundError, ConnectionRefusedError):
                if self.read_state(name).split()[0] == state:
                    return time.monotonic() - began
            assert time.monotonic() - began < PATIENCE, f"{name} is not {state}: {self.read_state(name)}"
            time.sleep(0.02)

    def close(self) -> None:
        self.proxy.kill()
        self.proxy.wait()
        for server in self.servers.values():
            server.remove()


def find_free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Load:
    """Clients that send one request after another, whole answers and streams in turn, until the block ends."""

    def __init__(self, port: int) -> None:
        self.url, self.answers = f"http://127.0.0.1:{port}/v1/completions", list[Answered]()
        self.over, self.hang = threading.Event(), False
        self.threads = [threading.Thread(target=self.run, args=(number,)) for number in range(CLIENTS)]

    def __enter__(self) -> "Load":
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join(PATIENCE)
        assert not any(thread.is_alive() for thread in self.threads), "a request hangs"

    def run(self, number: int) -> None:
        with httpx2.Client(timeout=PATIENCE / 2, headers={"authorization": f"Bearer {KEY}"}) as client:
            while not self.over.is_set():
                self.answers.append(self.send(client, PROMPTS[number % len(PROMPTS)], stream=number % 2 > 0))
                number += 1

    def send(self, client: httpx2.Client, prompt: str, *, stream: bool) -> Answered:
        began, text, error = time.monotonic(), "", ""
        body = {"model": "cat", "prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "stream": stream}
        try:
            with client.stream("POST", self.url, json=body) as answer:
                assert answer.status_code != 200 or answer.headers["x-triform-model"] == HASH
                if answer.status_code != 200:
                    error = f"{answer.status_code}: {answer.read()[:200]!r}"
                elif not stream:
                    answer.read()
                    text = answer.json()["choices"][0]["text"]
                else:
                    text, error = read_stream(answer)
        except httpx2.TransportError as failed:
            error = repr(failed)
            self.hang = self.hang or isinstance(failed, httpx2.TimeoutException)
        return Answered(began, time.monotonic(), text if not error else "", error)

    def wait_for(self, more: int) -> None:
        """Until so many more answers have come."""
        wanted, until = len(self.answers) + more, time.monotonic() + PATIENCE
        while len(self.answers) < wanted:
            assert time.monotonic() < until, "no answers come"
            time.sleep(0.01)

    @property
    def failed(self) -> list[Answered]:
        return [one for one in self.answers if one.error]

    def check(self, right: set[str]) -> None:
        """None wrong, none without an end."""
        assert not self.hang
        assert {one.text for one in self.answers if not one.error} <= right


def read_stream(answer: httpx2.Response) -> tuple[str, str]:
    """The text of a stream, and its error where it has one or does not end."""
    text = ""
    for line in answer.iter_lines():
        if line == "data: [DONE]":
            return text, ""
        if line.startswith("data: "):
            event = json.loads(line.removeprefix("data: "))
            if "error" in event:
                return text, str(event["error"])
            text += event["choices"][0]["text"]
    return text, "the stream has no end"


HASH = ""


@pytest.fixture(scope="module")
def right() -> set[str]:
    """The answers, computed here."""
    return {one.text for one in complete(decoder(), list(PROMPTS), max_tokens=TOKENS, temperature=0.0)}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    global HASH
    if shutil.which("haproxy") is None or shutil.which("ip") is None:
        pytest.skip("haproxy or ip is not installed (Debian: haproxy, iproute2)")
    if subprocess.run(["ip", "netns", "add", "triform-try"], check=False, capture_output=True).returncode:
        pytest.skip("network namespaces need root")
    subprocess.run(["ip", "netns", "del", "triform-try"], check=True)
    folder = tmp_path_factory.mktemp("cluster")
    model_folder.write(folder / "cat", model=decoder())
    HASH = hash_model(model_folder.read(folder / "cat"))
    made = Cluster(folder, folder / "cat")
    try:
        yield made
    finally:
        made.close()


@pytest.mark.slow
def test_a_server_that_is_killed_loses_only_what_runs_on_it(cluster: Cluster, right: set[str]) -> None:
    one = cluster.servers["one"]
    with Load(cluster.port) as load:
        load.wait_for(20)
        killed = time.monotonic()
        one.end(signal.SIGKILL)
        noticed = cluster.wait_for("one", "DOWN")
        load.wait_for(20)
        one.start()
        cluster.wait_for("one", "UP")
        load.wait_for(20)
    load.check(right)
    print(f"kill -9: {len(load.failed)} of {len(load.answers)} lost, noticed after {noticed:.2f} s")
    assert len(load.failed) <= CLIENTS
    assert all(failed.began < killed + noticed for failed in load.failed)


@pytest.mark.slow
def test_a_rolling_restart_loses_nothing(cluster: Cluster, right: set[str]) -> None:
    with Load(cluster.port) as load:
        for name, server in cluster.servers.items():
            load.wait_for(10)
            server.end(signal.SIGTERM)
            cluster.wait_for(name, "DOWN")
            server.start()
            cluster.wait_for(name, "UP")
        load.wait_for(10)
    load.check(right)
    assert not load.failed, load.failed[:3]
    print(f"rolling restart: none of {len(load.answers)} lost")


@pytest.mark.slow
def test_a_cut_cable_and_its_return_are_noticed(cluster: Cluster, right: set[str]) -> None:
    two = cluster.servers["two"]
    with Load(cluster.port) as load:
        load.wait_for(10)
        cut = time.monotonic()
        two.plug(plugged=False)
        lost = cluster.wait_for("two", "DOWN")
        load.wait_for(20)
        two.plug(plugged=True)
        back = cluster.wait_for("two", "UP")
        load.wait_for(20)
    load.check(right)
    print(
        f"cable: cut noticed after {lost:.2f} s, return after {back:.2f} s; "
        f"{len(load.failed)} of {len(load.answers)} lost"
    )
    assert all(failed.began < cut + lost for failed in load.failed)
    assert len(load.failed) <= 2 * CLIENTS


@pytest.mark.slow
def test_the_goodput_of_two_beside_one(cluster: Cluster, right: set[str]) -> None:
    """Printed, not judged: the machine decides."""

    def measure(seen: Callable[[], Any] = lambda: None) -> float:
        with Load(cluster.port) as load:
            load.wait_for(10)
            began, before = time.monotonic(), len(load.answers)
            load.wait_for(60)
            rate = (len(load.answers) - before) / (time.monotonic() - began)
        load.check(right)
        assert not load.failed
        return rate

    both = measure()
    cluster.command("set server models/two state drain")
    alone = measure()
    cluster.command("set server models/two state ready")
    print(f"goodput: {both:.1f} answers/s by two servers, {alone:.1f} by one: {both / alone:.2f}x")
