"""The server under load, against `transformers serve` and llama.cpp's server: same shape, same threads, one run.

Closed loop: so many clients, each asking again as soon as it is answered. Open loop: requests arrive at a fixed rate,
whatever has become of the earlier ones. Then what a server is for: overload at ten times the capacity, stalled sockets,
and many small embeddings at once. `python -m bench.serve`, or `--quick` to see that it runs.
"""

import argparse
import asyncio
import json
import math
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
from rich.console import Console
from rich.table import Table

from bench.formats import made
from bench.harness import RESULTS

THREADS = "2"
STREAMS = (1, 4, 16, 32, 64)
ALONE = (1, 4, 16, 32)  # those that the exponent is fitted on
LONG = 32  # so many streams or more ask once each: at the slowest server that takes minutes
ROWS = 16  # answers side by side, of the server that is overloaded
PROMPTS = 16  # of an overload, over and over: each answer is compared with that of a quiet server
READ, WRITE = 128, 64  # tokens
AIM = {"transformers serve": 3.0}  # at 16 streams
PATIENCE = 5.0  # seconds to the first token that still count as good


class Size(NamedTuple):
    """How long everything takes."""

    streams: tuple[int, ...] = STREAMS
    rounds: int = 3  # requests of each client
    seconds: float = 30.0  # of an open loop
    overload: float = 120.0
    new: int = WRITE


QUICK = Size(streams=(1, 4), rounds=1, seconds=3.0, overload=3.0, new=8)


# --- contenders -----------------------------------------------------------------------------------------------------


class Server:
    """A process that listens; `body` makes a request of some prompt; `last` is how a stream's last event begins."""

    last = "data: [DONE]"

    def __init__(
        self, name: str, command: Sequence[str], body: Callable[[int, int], dict[str, Any]], port: int
    ) -> None:
        self.name, self.body, self.url = name, body, f"http://127.0.0.1:{port}"
        self.sign = "/ready" if name == "triform" else "/health"
        env = os.environ | {"OMP_NUM_THREADS": THREADS, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        self.process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def wait(self) -> None:
        end = time.monotonic() + 300
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise SystemExit(f"{self.name} ended with {self.process.returncode}")
            try:
                if httpx2.get(f"{self.url}{self.sign}", timeout=2).status_code == 200:
                    return
            except httpx2.HTTPError:
                pass
            time.sleep(0.2)
        raise SystemExit(f"{self.name} does not answer")

    @property
    def memory(self) -> int:
        said = subprocess.run(
            ["ps", "-o", "rss=", "-p", str(self.process.pid)], capture_output=True, text=True, check=True
        )
        return 1024 * int(said.stdout)

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def some_ids(seed: int) -> list[int]:
    return [random.Random(seed).randrange(300, 30_000) for _ in range(READ)]


def ours(folder: Path, *limits: str) -> Server:
    port = free_port()
    given = [part for limit in limits for part in ("--limit", limit)]
    command = [sys.executable, "-m", "triform", "serve", f"model={folder}", "--port", str(port), *given]

    def body(seed: int, new: int) -> dict[str, Any]:
        how = {"temperature": 0, "ignore_eos": True, "stream_options": {"include_usage": True}}
        return {"model": "model", "prompt": some_ids(seed), "max_tokens": new} | how

    return Server("triform", command, body, port)


def transformers_serve(folder: Path) -> Server:
    port = free_port()
    where = Path(sys.executable).with_name("transformers")
    command = [str(where), "serve", str(folder), "--port", str(port), "--host", "127.0.0.1"]
    command += ["--device", "cpu", "--dtype", "float32"]

    def body(seed: int, new: int) -> dict[str, Any]:
        """It takes texts only; each word is one token."""
        words = " ".join(map(word_of, some_ids(seed)))
        return {"model": str(folder), "prompt": words, "max_tokens": new, "temperature": 0}

    made = Server("transformers serve", command, body, port)
    made.last = "data: {"  # it says no [DONE]; its last event holds the usage
    return made


def llama_cpp(gguf: Path) -> Server:
    port = free_port()
    command = [sys.executable, "-c", LLAMA.format(path=str(gguf), port=port, threads=THREADS, rows=max(STREAMS))]

    def body(seed: int, new: int) -> dict[str, Any]:
        how = {"temperature": 0, "ignore_eos": True, "cache_prompt": False, "stream_options": {"include_usage": True}}
        return {"prompt": some_ids(seed), "max_tokens": new} | how

    return Server("llama.cpp", command, body, port)


LLAMA = """
import signal, xllamacpp
params = xllamacpp.CommonParams()
params.model.path = {path!r}
params.n_ctx, params.n_parallel, params.cont_batching, params.verbosity = 256 * {rows}, {rows}, True, -1
params.hostnames, params.port = ["127.0.0.1"], {port}
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = {threads}
server = xllamacpp.Server(params)
signal.pause()
"""


def with_words(folder: Path) -> Path:
    """transformers serves texts only: every id is a word, so that each token is seen when it comes."""
    import tokenizers

    size = json.loads((folder / "config.json").read_text(encoding="utf-8"))["vocab_size"]
    words = tokenizers.models.WordLevel({word_of(id): id for id in range(size)}, unk_token=word_of(0))
    made = tokenizers.Tokenizer(words)
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.save(str(folder / "tokenizer.json"))
    told = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": word_of(0)}
    (folder / "tokenizer_config.json").write_text(json.dumps(told), encoding="utf-8")
    return folder


def word_of(id: int) -> str:
    return f"t{id}"


# --- load -----------------------------------------------------------------------------------------------------------


class Done(NamedTuple):
    """One request: its status, seconds to the first token and to the end, gaps between pieces, tokens and text written.

    Status 0: the answer broke off, or holds an error.
    """

    status: int
    first: float
    whole: float
    gaps: tuple[float, ...] = ()
    tokens: int = 0
    seed: int = 0
    text: str = ""


async def ask(client: httpx2.AsyncClient, server: Server, seed: int, new: int) -> Done:
    began = last = time.perf_counter()
    first, gaps, lines = 0.0, [], [""]
    body = server.body(seed, new) | {"stream": True}
    try:
        async with client.stream("POST", f"{server.url}/v1/completions", json=body) as answer:
            if answer.status_code != 200:
                await answer.aread()
                return Done(answer.status_code, 0.0, time.perf_counter() - began)
            async for line in answer.aiter_lines():
                lines += [line] if line else []
                if line.startswith("data: {") and '"choices":[]' not in line:  # which would be the usage alone
                    now = time.perf_counter()
                    if first:
                        gaps.append(now - last)
                    first, last = first or now - began, now
    except httpx2.HTTPError:
        return Done(0, 0.0, time.perf_counter() - began)
    whole = time.perf_counter() - began
    tokens, text = said(lines) if lines[-1].startswith(server.last) else (0, "")
    return Done(200 if tokens else 0, first, whole, tuple(gaps), tokens, seed, text)


def said(lines: Sequence[str]) -> tuple[int, str]:
    """Tokens, as the server has counted them at the end, and text of a stream; none where it holds an error."""
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    if any("error" in event for event in events):
        return 0, ""
    usage = next((event["usage"] for event in reversed(events) if event.get("usage")), {})
    pieces = [choice.get("text") or "" for event in events for choice in event.get("choices", ())]
    return int(usage.get("completion_tokens", 0)), "".join(pieces)


class Load(NamedTuple):
    """What a load has come to."""

    what: str
    server: str
    tokens: float  # a second
    good: float  # of them, in answers whose first token came in time
    first: tuple[float, float]  # p50, p99
    between: tuple[float, float]
    refused: int
    failed: int
    refusal: float  # p99 of the time a refusal took
    texts: tuple[tuple[int, str], ...] = ()  # of the right answers: seed and text


def summed(what: str, server: Server, done: Sequence[Done], seconds: float) -> Load:
    right = [one for one in done if one.status == 200]
    gaps = [gap for one in right for gap in one.gaps]
    refused = [one.whole for one in done if one.status == 429]
    return Load(
        what=what,
        server=server.name,
        tokens=sum(one.tokens for one in right) / seconds,
        good=sum(one.tokens for one in right if one.first <= PATIENCE) / seconds,
        first=(quantile([one.first for one in right], 0.5), quantile([one.first for one in right], 0.99)),
        between=(quantile(gaps, 0.5), quantile(gaps, 0.99)),
        refused=len(refused),
        failed=len(done) - len(right) - len(refused),
        refusal=quantile(refused, 0.99),
        texts=tuple((one.seed, one.text) for one in right),
    )


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else math.nan


def client() -> httpx2.AsyncClient:
    many = httpx2.Limits(max_connections=None, max_keepalive_connections=256)
    return httpx2.AsyncClient(timeout=300, limits=many)


async def closed(server: Server, streams: int, size: Size) -> Load:
    async with client() as asking:

        async def one(stream: int) -> list[Done]:
            return [await ask(asking, server, 1000 * stream + at, size.new) for at in range(size.rounds)]

        began = time.perf_counter()
        done = await asyncio.gather(*(one(stream) for stream in range(streams)))
        return summed(
            f"{streams} streams", server, [each for some in done for each in some], time.perf_counter() - began
        )


async def open_loop(server: Server, rate: float, seconds: float, size: Size, what: str, prompts: int = 10**9) -> Load:
    """Arrivals by chance, at this rate; of so many different prompts."""
    chance, doing = random.Random(1), []
    async with client() as asking:
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            doing.append(asyncio.ensure_future(ask(asking, server, len(doing) % prompts, size.new)))
            await asyncio.sleep(chance.expovariate(rate))
        done = await asyncio.gather(*doing)
        return summed(what, server, done, time.perf_counter() - began)


async def embeddings(server: Server, clients: int, texts: Sequence[str]) -> float:
    """Texts a second, each a request."""
    waiting = iter(texts)

    async def one() -> None:
        line = await Line.open(server)
        for text in waiting:
            await line.post("/v1/embeddings", {"model": "embed", "input": text})
        line.close()

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(clients)))
    return len(texts) / (time.perf_counter() - began)


class Line:
    """A connection that is kept, and no more than many small requests need: a whole client takes as much of the two
    cores as the server does."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, server: Server) -> "Line":
        return cls(*await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2])))

    async def post(self, path: str, asked: dict[str, Any]) -> bytes:
        body = json.dumps(asked).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        self.writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        said = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        answer = await self.reader.readexactly(int(said.partition(b"content-length: ")[2].split()[0]))
        if not said.startswith(b"http/1.1 200"):
            raise SystemExit(f"{path}: {answer[:200]!r}")
        return answer

    def close(self) -> None:
        self.writer.close()


def bad_bodies() -> dict[str, bytes]:
    """One of each kind of bad input, as large as it may be where size could cost time."""

    def with_field(name: str, value: str) -> bytes:
        return f'{{"model": "model", "prompt": [1], "{name}": {value}}}'.encode()

    twice = ", ".join(f'"{id}": 1' for id in range(80_000)) + ', "79999": 1'
    return {
        "out of range": with_field("temperature", "9"),
        "unknown field": with_field("bogus", "1"),
        "wrong type": with_field("n", '"two"'),
        "NaN": with_field("temperature", "NaN"),
        "huge number": with_field("max_tokens", "9" * 4000),
        "deep JSON": with_field("stop", "[" * 400_000 + "]" * 400_000),
        "a name twice": with_field("logit_bias", "{" + twice + "}"),
        "not UTF-8": with_field("user", '"x"').replace(b"x", b"\xff"),
        "unknown model": b'{"model": "nobody", "prompt": [1]}',
        "prompt too long": json.dumps({"model": "model", "prompt": [1] * 300_000}).encode(),
        "impossible id": b'{"model": "model", "prompt": [2000000]}',
    }


async def refusals(server: Server, times: int) -> dict[str, float]:
    """p99 seconds of a refusal, of each kind of bad input."""
    found = {}
    async with client() as asking:
        for what, body in bad_bodies().items():
            took = []
            for _ in range(times):
                began = time.perf_counter()
                headers = {"content-type": "application/json"}
                answer = await asking.post(f"{server.url}/v1/completions", content=body, headers=headers)
                took.append(time.perf_counter() - began)
                if not 400 <= answer.status_code < 500 or "error" not in answer.json():
                    raise SystemExit(f"{what}: {answer.status_code} {answer.text[:200]}")
            found[what] = quantile(took, 0.99)
    return found


def stalled(server: Server, count: int) -> list[socket.socket]:
    """Sockets that have begun a request and say no more."""
    port = int(server.url.rpartition(":")[2])
    found = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
    for one in found:
        one.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 100\r\n")
    return found


# --- the run --------------------------------------------------------------------------------------------------------


def exponent(loads: Sequence[Load]) -> float:
    """How the time between tokens grows with the number of streams."""
    pairs = [(int(load.what.split()[0]), load.between[0]) for load in loads if load.what.endswith("streams")]
    known = [(math.log(streams), math.log(gap)) for streams, gap in pairs if streams <= 32 and gap > 0]
    return statistics.linear_regression(*zip(*known, strict=True)).slope if len(known) > 1 else math.nan


async def contest(servers: Sequence[Server], size: Size) -> list[Load]:
    loads = []
    for streams in size.streams:
        for server in servers:
            await closed(server, min(streams, 2), size._replace(rounds=1))  # warm
            rounds = 1 if streams >= LONG else size.rounds
            loads.append(told(await closed(server, streams, size._replace(rounds=rounds))))
    for server in servers:
        peak = max(load.tokens for load in loads if load.server == server.name)
        rate = 0.7 * peak / size.new
        loads.append(told(await open_loop(server, rate, size.seconds, size, f"open loop, {rate:.1f}/s")))
    return loads


def told(load: Load) -> Load:
    """A run takes a quarter of an hour: every figure is said when it is there."""
    print(f"{load.what}, {load.server}: {load.tokens:,.1f} tokens/s", file=sys.stderr, flush=True)
    return load


async def alone(server: Server, size: Size) -> dict[str, Any]:
    """What only a server that must stay up is asked; its peak is what it writes with all rows in use."""
    peak = told(await closed(server, ROWS, size)).tokens
    before = server.memory
    over = await open_loop(server, 10 * peak / size.new, size.overload, size, "overload, 10x", prompts=PROMPTS)
    after = server.memory
    quiet = dict((await quietly(server, size)).texts)
    slower = [await beside_stalled(server, 200, size) for _ in range(size.rounds)]
    return {
        "peak": peak,
        "overload": figures(over),
        "answers under overload": len(over.texts),
        "of them wrong (aim 0)": sum(text != quiet.get(seed) for seed, text in over.texts),
        "goodput of peak (aim 0.9)": over.good / peak,
        "memory grew by": after / before - 1,
        "slower beside 200 stalled sockets (aim 0.1)": statistics.median(slower),
        "p99 seconds of refusals (aim 0.05)": await refusals(server, 5 if size == QUICK else 100),
    }


async def quietly(server: Server, size: Size) -> Load:
    """The prompts of the overload, one after another, with nobody else about."""
    async with client() as asking:
        return summed("quiet", server, [await ask(asking, server, seed, size.new) for seed in range(PROMPTS)], 1.0)


def figures(load: Load) -> dict[str, Any]:
    return {name: value for name, value in load._asdict().items() if name != "texts"}


async def beside_stalled(server: Server, count: int, size: Size) -> float:
    """By what share the same 8 answers take longer with such sockets than without."""
    quiet = await closed(server, 8, size._replace(rounds=1))
    held = stalled(server, count)
    beside = await closed(server, 8, size._replace(rounds=1))
    for one in held:
        one.close()
    return quiet.tokens / beside.tokens - 1


def shown(loads: Sequence[Load], title: str) -> None:
    table = Table(title=title)
    for column in ("load", "server", "tokens/s", "good", "first p50 / p99", "between p50 / p99", "refused", "failed"):
        table.add_column(column, justify="left" if column in ("load", "server") else "right")
    for load in sorted(loads, key=lambda load: load.what):
        first, between = (" / ".join(f"{1000 * x:,.0f}" for x in pair) + " ms" for pair in (load.first, load.between))
        row = (f"{load.tokens:,.1f}", f"{load.good:,.1f}", first, between, str(load.refused), str(load.failed))
        table.add_row(load.what, load.server, *row)
    Console(width=150).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small numbers: whether it runs, not how fast")
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()) / "triform-bench")
    parser.add_argument("--alone", action="store_true", help="without the peers: to 32 streams, overload, embeddings")
    given = parser.parse_args()
    size = QUICK if given.quick else Size(streams=ALONE) if given.alone else Size()
    embedded = embedding_run(given.scratch, requests=64 if given.quick else 2000)
    formats = made("gpt2-small", given.scratch)
    folder = with_words(formats.transformers)
    servers = [ours(folder, f"rows={max(STREAMS)}")]
    if not given.alone:
        servers += [transformers_serve(folder), llama_cpp(formats.gguf["F32"])]
    with running(*servers):
        loads = asyncio.run(contest(servers, size))
    # As many rows as the machine has a use for. Whoever would wait so long for one that its first token came late is
    # better told so at once. The prompts come again and again; what was read of them is not kept, since others'
    # prompts would not come again.
    limits = (f"rows={ROWS}", f"wait_seconds={PATIENCE / 5}", "prefix_bytes=0")
    with running(ours(folder, *limits)) as (usual,):
        held = asyncio.run(alone(usual, size))
    record = report(loads, held, embedded)
    if not given.quick and not given.alone:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "serve.json").write_text(json.dumps(record, indent=2), encoding="utf-8")


@contextmanager
def running(*servers: Server) -> Iterator[tuple[Server, ...]]:
    try:
        for server in servers:
            server.wait()
        yield servers
    finally:
        for server in servers:
            server.close()


def embedding_run(scratch: Path, *, requests: int) -> dict[str, dict[str, float]]:
    """Texts of one sentence, and of one to five: one by one, and 64 clients at once; an encoder of MiniLM's shape."""
    folder = scratch / "embed"
    if not folder.exists():
        make_encoder(folder)
    port = free_port()
    command = [sys.executable, "-m", "triform", "serve", f"embed={folder}", "--port", str(port)]
    with running(Server("triform", command, lambda seed, new: {}, port)) as (server,):
        asyncio.run(embeddings(server, 2, english(16)))
        return {"a sentence": gain(server, english(requests)), "one to five": gain(server, english(requests, most=5))}


def gain(server: Server, texts: Sequence[str]) -> dict[str, float]:
    single = asyncio.run(embeddings(server, 1, texts[: max(32, len(texts) // 4)]))
    many = asyncio.run(embeddings(server, 64, texts))
    return {"one by one": single, "64 clients": many, "ratio": many / single}


def english(count: int, *, most: int = 1) -> list[str]:
    """Texts of one to `most` sentences of the little world."""
    import little_world

    chance = random.Random(3)
    sentences = iter([one.english for one in little_world.sentences(split="test", seed=3, count=count * most)])
    return [" ".join(next(sentences) for _ in range(chance.randint(1, most))) for _ in range(count)]


def make_encoder(folder: Path) -> None:
    from triform import families
    from triform.core.initial_weights import build_network
    from triform.model import Model
    from triform.pooling import Pooling
    from triform.spec import NoHead, replace
    from triform.text.train_tokenizer import train_tokenizer
    from triform.weights import model_folder as folders

    sizes = {"vocab": 30_522, "width": 384, "layers": 6, "heads": 12, "context": 512}
    spec = replace(families.bert(**sizes), head=NoHead())
    words = train_tokenizer(english(2000), kind="wordpiece", vocab=2000)
    folders.write(folder, model=Model(spec, build_network(spec), words, pooling=Pooling("mean", normalise=True)))


def report(loads: Sequence[Load], held: dict[str, Any], embedded: dict[str, Any]) -> dict[str, Any]:
    shown(loads, "128 tokens in, 64 out, GPT-2 small, float32, 2 threads")
    at = {(load.what, load.server): load.tokens for load in loads}
    ratios = {
        peer: at.get(("16 streams", "triform"), math.nan) / at.get(("16 streams", peer), math.nan) for peer in AIM
    }
    told = {
        "ratio at 16 streams": ratios,
        "aim": AIM,
        "exponent of the time between tokens": {
            name: exponent([load for load in loads if load.server == name]) for name in {load.server for load in loads}
        },
        "held": held,
        "embeddings a second": embedded,
    }
    Console(width=150).print_json(json.dumps(told))
    return told | {"loads": [figures(load) for load in loads], "date": time.strftime("%Y-%m-%d %H:%M")}


if __name__ == "__main__":
    main()
