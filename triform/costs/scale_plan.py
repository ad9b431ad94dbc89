"""A plan for many devices: memory, messages and time of a training, and replicas for a request rate.

From the spec, the limits of a device and of the connection between them; times are lower bounds by the roofline. Needs
no torch; tests compare the bytes with those that processes send.
"""

import math
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from triform.cluster.traffic import BUCKET_BYTES, NUMBER_BYTES, Traffic, count_replicated, count_sharded, count_share
from triform.costs.machine import Machine
from triform.costs.overview import cost_of_context
from triform.costs.predict import OPTIMIZER, Cost
from triform.costs.roofline import roofline
from triform.costs.workload import Phase
from triform.errors import InputError
from triform.parameters import TensorInfo, list_tensors
from triform.spec import ModelSpec

if TYPE_CHECKING:
    from rich.console import RenderableType

Way = Literal["replicated", "sharded"]
USED_SHARE = 0.7  # of what a replica can answer: requests do not come evenly
MAX_COUNT = 1 << 20


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """Between two processes: bytes per second in each direction, and seconds until a message arrives."""

    bandwidth: float
    latency: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.bandwidth < math.inf or not 0 <= self.latency < math.inf:
            raise InputError(f"a connection of {self.bandwidth:g} bytes/s and {self.latency:g} s is none")

    def find_seconds(self, traffic: tuple[Traffic, ...]) -> float:
        """Σ messages · latency + Σ bytes / bandwidth"""
        return (
            sum(each.messages for each in traffic) * self.latency + sum(each.sent for each in traffic) / self.bandwidth
        )


class TrainingPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One step, in which each process computes one pass. Bytes are of one process."""

    way: Way
    weights: int
    gradients: int
    optimizer: int
    activations: int
    exchange: int  # buffers of what is sent and received
    device_memory: int  # of all processes on one device
    traffic: tuple[Traffic, ...]
    computing: float | None  # seconds; None: no machine is known
    sending: float | None  # seconds; None: no connection is known
    tokens_per_second: float | None

    @property
    def memory(self) -> int:
        """Of one process."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.exchange


class ReplicaPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Serving: each device has a replica that answers `batch` requests together."""

    requests_per_second: float
    seconds: float  # from the first pass of a batch to its last
    per_replica: float  # requests per second, at most
    replicas: int
    memory: int  # of a replica


class ScalePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What several devices need and do; times only where a machine is known."""

    model: str
    parameters: int
    processes: int
    devices: int
    batch: int
    length: int
    machine: Machine | None
    connection: Connection | None
    training: tuple[TrainingPlan, ...]
    replicas: ReplicaPlan | None

    def to_json(self) -> str:
        table = msgspec.to_builtins(self)
        for row, plan in zip(table["training"], self.training, strict=True):
            row["memory"] = plan.memory
            row["traffic"] = [each._asdict() for each in plan.traffic]
        return msgspec.json.encode(table).decode()

    def __rich__(self) -> "RenderableType":
        from triform.costs.scale_tables import make_plan_table

        return make_plan_table(self)


def make_plan(
    spec: ModelSpec,
    *,
    model: str,
    processes: int | None = None,
    devices: int | None = None,
    connection: Connection | None = None,
    machine: Machine | None = None,
    rate: float | None = None,
    batch: int = 1,
    context: int | None = None,
    source: int | None = None,
    new: int | None = None,
    dtype: str = "float32",
) -> ScalePlan:
    """A process per device, unless told otherwise; `batch`: sequences of a process's pass, or of a replica. Where only
    a rate is asked for, nothing is trained."""
    trains = rate is None or devices is not None or processes is not None
    for name, count in (("processes", processes), ("devices", devices)):
        if count is not None and not 1 <= count <= MAX_COUNT:
            raise InputError(f"{name}={count} is out of range; use 1 to {MAX_COUNT}")
    devices = next((count for count in (devices, processes) if count is not None), 1)
    processes = devices if processes is None else processes
    sizes: dict[str, Any] = {"batch": batch, "context": context, "source": source}
    one, state = (cost_of_context(spec, phase="training", dtype=each, **sizes) for each in (dtype, "float32"))
    return ScalePlan(
        model=model,
        parameters=one.parameters,
        processes=processes,
        devices=devices,
        batch=batch,
        length=one.load.length,
        machine=machine,
        connection=connection,
        training=tuple(
            plan_training(spec, one, state, way, processes, devices, machine, connection)
            for way in ("replicated", "sharded")
            if trains and (way == "replicated" or processes > 1)
        ),
        replicas=None if rate is None else plan_replicas(spec, rate, machine, dtype=dtype, new=new, **sizes),
    )


def plan_training(
    spec: ModelSpec,
    one: Cost,
    state: Cost,
    way: Way,
    processes: int,
    devices: int,
    machine: Machine | None,
    connection: Connection | None,
) -> TrainingPlan:
    """`one` is the cost of a pass; of `state` the weights, gradients and moments, which stay in float32."""
    tensors = [entry for entry in list_tensors(spec).values() if entry.trained]
    memory, shared = state.memory, -(-processes // devices)
    if way == "sharded":
        blocks, root = group_tensors(tensors)
        traffic = count_sharded(blocks, root, processes=processes)
        whole = sum(count_share(shapes, 1) for shapes in (*blocks, root))
        part = sum(count_share(shapes, processes) for shapes in (*blocks, root)) / whole
        exchange = 2 * max(count_share(shapes, 1) for shapes in blocks) + 2 * count_share(root, 1)
    else:
        sizes = [entry.size for entry in sorted(tensors, key=lambda entry: entry.path)]
        traffic = count_replicated(sizes, processes=processes) if processes > 1 else ()
        part, largest = 1.0, max(BUCKET_BYTES, NUMBER_BYTES * max(sizes))
        exchange = memory.gradients + 5 * min(largest, memory.gradients) if processes > 1 else 0
    computing = None
    if machine is not None:
        passing = sum(row.seconds for row in roofline(one, machine=machine).rows if row.stack != OPTIMIZER)
        stepping = sum(row.seconds for row in roofline(state, machine=machine).rows if row.stack == OPTIMIZER)
        computing = shared * (passing + part * stepping)
    sending = None if connection is None else connection.find_seconds(traffic)
    if not traffic:
        sending = 0.0
    seconds = None if computing is None or sending is None else computing + sending
    plan = TrainingPlan(
        way=way,
        weights=math.ceil(part * memory.weights),
        gradients=math.ceil(part * memory.gradients),
        optimizer=math.ceil(part * memory.optimizer),
        activations=one.memory.kept + one.memory.passing,
        exchange=exchange,
        device_memory=0,
        traffic=traffic,
        computing=computing,
        sending=sending,
        tokens_per_second=None if seconds is None else processes * one.load.batch * one.load.length / seconds,
    )
    return msgspec.structs.replace(plan, device_memory=shared * plan.memory)


def group_tensors(tensors: list[TensorInfo]) -> tuple[list[list[tuple[int, ...]]], list[tuple[int, ...]]]:
    """The shapes of each block, and of all else."""
    blocks: dict[str, list[tuple[int, ...]]] = {}
    root: list[tuple[int, ...]] = []
    for entry in tensors:
        stack, _, rest = entry.path.partition(".blocks.")
        if rest:
            blocks.setdefault(f"{stack}.{rest.partition('.')[0]}", []).append(entry.shape)
        else:
            root.append(entry.shape)
    return list(blocks.values()), root


def plan_replicas(
    spec: ModelSpec,
    rate: float,
    machine: Machine | None,
    *,
    batch: int,
    context: int | None,
    source: int | None,
    new: int | None,
    dtype: str,
) -> ReplicaPlan:
    """A replica answers a batch of requests in the time of its passes by the roofline."""
    if not 0 < rate < math.inf:
        raise InputError(f"requests per second: {rate:g} is no rate; use a number above 0")
    if machine is None:
        raise InputError("replicas follow from a device's speed: give --peak and --bandwidth, or measure: --measure")
    phase: Phase = "reading" if spec.decoder is None else "generation"
    found = cost_of_context(spec, phase=phase, batch=batch, context=context, source=source, new=new, dtype=dtype)
    seconds = roofline(found, machine=machine).seconds
    per_replica = batch / seconds
    return ReplicaPlan(
        requests_per_second=rate,
        seconds=seconds,
        per_replica=per_replica,
        replicas=math.ceil(rate / (USED_SHARE * per_replica)),
        memory=found.memory.total,
    )


def parse_rate(text: str) -> float:
    """`50GB/s`, `100Gbit/s` → bytes per second."""
    from triform.costs.fit_memory import parse_bytes

    amount, _, per = text.strip().rpartition("/")
    bits = amount.strip().lower().endswith("bit")
    if per != "s" or not amount:
        raise InputError(f"{text!r} is no speed; use for example 50GB/s, or 100Gbit/s")
    return parse_bytes(f"{amount.strip()[:-3]}B") / 8 if bits else float(parse_bytes(amount))
