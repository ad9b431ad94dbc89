"""Prometheus metrics: requests, queues, latencies, tokens, caches, and the FLOPs and bytes of the cost model."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from time import monotonic

import prometheus_client as prometheus

from triform.costs.predict import cost
from triform.costs.workload import Phase
from triform.generate.engine import Engine
from triform.generate.events import Event
from triform.spec import ModelSpec

FIRST_TOKEN_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)  # seconds
INTER_TOKEN_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
REQUEST_BUCKETS = (0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 120)


class Metrics:
    """One registry per service, so that two services in one process do not share counters."""

    def __init__(self) -> None:
        self.registry = prometheus.CollectorRegistry()
        self.requests = self._counter("requests", "Requests by route and status.", "route", "status")
        self.seconds = self._histogram("request_seconds", "Request duration.", "route", buckets=REQUEST_BUCKETS)
        self.running = self._gauge("num_requests_running", "Answers being computed.")
        self.waiting = self._gauge("num_requests_waiting", "Answers waiting in the queue.")
        self.cache = self._gauge("kv_cache_usage_perc", "KV-cache usage, 0 to 1.")
        self.first = self._histogram(
            "time_to_first_token_seconds", "Time from request to first token.", buckets=FIRST_TOKEN_BUCKETS
        )
        self.between = self._histogram(
            "inter_token_latency_seconds", "Time between two decoding steps.", buckets=INTER_TOKEN_BUCKETS
        )
        self.read = self._counter("prompt_tokens", "Prompt tokens processed.")
        self.written = self._counter("generation_tokens", "Tokens generated.")
        self.flops = self._counter("flops", "Floating-point operations by the cost model.")
        self.moved = self._counter("bytes_moved", "Bytes moved by the cost model.")

    def _counter(self, name: str, says: str, *labels: str) -> prometheus.Counter:
        return prometheus.Counter(f"triform_{name}", says, labels or ("model",), registry=self.registry)

    def _gauge(self, name: str, says: str) -> prometheus.Gauge:
        return prometheus.Gauge(f"triform_{name}", says, ("model",), registry=self.registry)

    def _histogram(self, name: str, says: str, *labels: str, buckets: Sequence[float]) -> prometheus.Histogram:
        named = f"triform_{name}"
        return prometheus.Histogram(named, says, labels or ("model",), buckets=buckets, registry=self.registry)

    def render_text(self) -> bytes:
        return prometheus.generate_latest(self.registry)


class ModelMetrics:
    """The metrics of one model."""

    def __init__(self, metrics: Metrics, name: str, spec: ModelSpec) -> None:
        self.metrics, self.name = metrics, name
        self.first, self.between = metrics.first.labels(name), metrics.between.labels(name)
        self.read, self.written = metrics.read.labels(name), metrics.written.labels(name)
        self.flops, self.moved = metrics.flops.labels(name), metrics.moved.labels(name)
        self.costs = StepCosts(spec)
        self._last = 0.0

    def register_gauges(
        self, *, running: Callable[[], float], waiting: Callable[[], float], cache: Callable[[], float]
    ) -> None:
        """Registers values that are computed when metrics are scraped."""
        self.metrics.running.labels(self.name).set_function(running)
        self.metrics.waiting.labels(self.name).set_function(waiting)
        self.metrics.cache.labels(self.name).set_function(cache)

    def record_step(self, engine: Engine, events: Sequence[Event], *, goes_on: bool) -> None:
        """After each step of the worker; it `goes_on` if a sequence had a token before this step."""
        for begin, end in engine.prefilled:
            self.read.inc(end - begin)
            (flops, moved), (known, held) = self.costs.reading_cost(end), self.costs.reading_cost(begin)
            self._add_cost((max(0.0, flops - known), max(0.0, moved - held)))
        if not events:
            return
        now = monotonic()
        if goes_on:
            self.between.observe(now - self._last)
        self._last = now
        self.written.inc(len(events))
        self._add_cost(self.costs.step_cost(engine.runner.cache.lengths[: len(engine.running)]))

    def record_search(self, written: Sequence[int], *, beams: int) -> None:
        """Beam searches that returned this many tokens each; every token took one step of all beams."""
        for tokens in written:
            flops, moved = self.costs.step_cost(
                [(1 + tokens) / 2] * beams
            )  # a mean: a step's cost is linear in lengths
            self.written.inc(tokens)
            self._add_cost((tokens * flops, tokens * moved))

    def record_prompt(self, tokens: int) -> None:
        self.read.inc(tokens)
        self._add_cost(self.costs.reading_cost(tokens))

    def _add_cost(self, done: tuple[float, float]) -> None:
        self.flops.inc(done[0])
        self.moved.inc(done[1])


class StepCosts:
    """FLOPs and bytes, computed quickly: the cost of a step is linear in the rows and in the sum of their lengths."""

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec
        self.reading_cost = lru_cache(maxsize=8192)(self._reading_cost)
        window = None if spec.decoder is None else spec.decoder.attention.window
        self.most = spec.context if window is None else min(spec.context, window)
        if spec.decoder is not None:
            far = min(self.most, 64)
            one, two, long = self._measure_step(1, 1), self._measure_step(2, 1), self._measure_step(1, far)
            self.position = tuple((b - a) / max(1, far - 1) for a, b in zip(one, long, strict=True))
            self.row = tuple(b - a - p for a, b, p in zip(one, two, self.position, strict=True))
            self.once = tuple(a - r - p for a, r, p in zip(one, self.row, self.position, strict=True))

    def step_cost(self, lengths: Sequence[float]) -> tuple[float, float]:
        """One more token per row: once + row · rows + position · Σ lengths"""
        positions = sum(min(length, self.most) for length in lengths)
        flops, moved = (
            once + row * len(lengths) + position * positions
            for once, row, position in zip(self.once, self.row, self.position, strict=True)
        )
        return flops, moved

    def _measure_step(self, batch: int, length: int) -> tuple[float, float]:
        total = cost(self.spec, phase="step", batch=batch, length=length, source=self._source_length(1)).total
        return total.flops, total.moved

    def _reading_cost(self, tokens: int) -> tuple[float, float]:
        """For a text longer than the context: the sum over its windows."""
        whole, rest = divmod(tokens, self.spec.context)
        each = self._window_cost(self.spec.context) if whole else (0.0, 0.0)
        last = self._window_cost(rest) if rest else (0.0, 0.0)
        return whole * each[0] + last[0], whole * each[1] + last[1]

    def _window_cost(self, length: int) -> tuple[float, float]:
        phase: Phase = "reading" if self.spec.decoder is None else "prefill"
        own = length if self.spec.form != "encoder-decoder" else 1
        total = cost(self.spec, phase=phase, length=own, source=self._source_length(length)).total
        return total.flops, total.moved

    def _source_length(self, length: int) -> int | None:
        return length if self.spec.form == "encoder-decoder" else None
