"""How a process joins the others of its run, and how it leaves them.

    with join_team(find_rank(), silence=30) as team:

On one machine they find each other through a file in a private folder and listen on the loopback interface alone; on
several through the store of torchrun. A process that leaves by an error tells the others why.
"""

import os
import secrets
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore, PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from triform.cluster.failures import Failure, report_failure
from triform.cluster.peer_watch import EXIT_CODE, PeerWatch
from triform.cluster.rank import RESTARTS, Rank
from triform.cluster.team import ProcessTeam, Team
from triform.errors import TriformError

JOIN_SECONDS = 45.0
FOR_EVER = timedelta(days=30)  # of a collective: the watch notices what goes wrong
SIOCGIFADDR = 0x8915  # from linux/sockios.h: the address of an interface
STOPPED = 130  # exit code after Ctrl-C
IN_USE = "EADDRINUSE"  # in torch's error


@contextmanager
def join_team(rank: Rank, *, silence: float) -> Iterator[Team]:
    """The team of this process; after an error its cause was reported, and it exits with code 2."""
    if rank.size == 1:
        yield Team()
        return
    watch: PeerWatch | None = None
    try:
        watch = meet(rank, silence=silence)
        yield ProcessTeam(rank, watch)
        watch.close()
        dist.destroy_process_group()
    except BaseException as error:
        leave(rank, watch, error)
        if isinstance(error, TriformError):
            raise SystemExit(EXIT_CODE) from error
        if isinstance(error, KeyboardInterrupt) and not rank.leads:
            raise SystemExit(STOPPED) from error
        raise


def leave(rank: Rank, watch: PeerWatch | None, error: BaseException) -> None:
    """Tells the others and the starter why this process fails."""
    why = (
        str(error) if isinstance(error, TriformError) else f"rank {rank.number} failed: {type(error).__name__}: {error}"
    )
    failure = Failure(by=rank.number, why=why) if watch is None else watch.fail(why)
    if isinstance(error, TriformError):
        report_failure(rank, failure)


def meet(rank: Rank, *, silence: float) -> PeerWatch:
    """Waits for all processes; then they watch each other and form torch's process group."""
    address = choose_address(rank)
    try:
        store = open_store(rank)
        if rank.leads:
            listener = socket.create_server((address, 0), family=family_of(address))
            secret = secrets.token_hex(32)
            store.set("watch", f"{secret} {address} {listener.getsockname()[1]}")
            connection = listener
        else:
            secret, host, port = store.get("watch").decode().split()
            connection = socket.create_connection((host, int(port)), timeout=JOIN_SECONDS)
    except (RuntimeError, OSError) as error:  # torch's errors of a store are RuntimeErrors
        if IN_USE in str(error):
            raise TriformError(
                f"port {os.environ.get('MASTER_PORT')} is in use on this machine; choose another --master-port"
            ) from None
        raise TriformError(
            f"rank {rank.number} cannot reach rank 0 within {JOIN_SECONDS:g} s: {first_line(error)}"
        ) from None
    watch = PeerWatch(rank, silence=silence, join=JOIN_SECONDS, secret=secret)
    watch.begin(connection)
    try:
        form_group(rank, store)
    except (RuntimeError, ValueError) as error:
        raise watch.explain(error) from None
    return watch


def open_store(rank: Rank) -> Store:
    """The keys and values through which the processes find each other: a file on one machine, else torchrun's."""
    if rank.folder is not None:
        store: Store = FileStore(str(rank.folder / "store"), rank.size)
    else:
        store, _, _ = next(rendezvous("env://"))
        # torchrun's store outlives the processes: after a restart it still says where the lost ones listened.
        store = PrefixStore(f"start {os.environ.get(RESTARTS, '0')}", store)
    store.set_timeout(timedelta(seconds=JOIN_SECONDS))
    return store


def form_group(rank: Rank, store: Store) -> None:
    """torch's process group: gloo for tensors in memory, nccl for those on a GPU, of which each process takes one."""
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(rank.local % torch.cuda.device_count())
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if cuda else "gloo",
        store=PrefixStore("group", store),
        rank=rank.number,
        world_size=rank.size,
        timeout=FOR_EVER,
    )


def first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0]


# --- addresses ------------------------------------------------------------------------------------------------------


def choose_address(rank: Rank) -> str:
    """Where the others reach this process. gloo shall use the same interface, unless the user has chosen one."""
    if rank.folder is not None:
        return "127.0.0.1"
    master = os.environ.get("MASTER_ADDR", "")
    try:
        family, kind, _, _, place = socket.getaddrinfo(master, os.environ.get("MASTER_PORT"), type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(place)  # of a datagram socket: sends nothing
            address: str = probe.getsockname()[0]
    except OSError as error:
        raise TriformError(
            f"rank {rank.number} has no way to MASTER_ADDR={master!r}: {error.strerror or error}"
        ) from None
    if (name := name_interface(address)) is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
    return address


def family_of(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def name_interface(address: str) -> str | None:
    """The network interface with this IPv4 address; None where that is not known."""
    if not sys.platform.startswith("linux") or ":" in address:
        return None
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # an interface without address
                answer = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                if socket.inet_ntoa(answer[20:24]) == address:
                    return name
    return None
