"""Ray engine: builds parts as tasks of a Ray cluster.

`ClusterEngine` repeats failed tasks. Ray must not (`max_retries=0`): its count omits failures such as lack of memory.
"""

import signal
import socket
import threading
from functools import lru_cache
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from packer.conversion.engines._cluster_engine import (
    Cluster,
    ClusterEngine,
    Lost,
    Outcome,
    Task,
    Workplace,
    build_remotely,
)
from packer.conversion.engines.base import EngineOptions
from packer.conversion.machine_versions import check_versions, compares_pixels, library_versions
from packer.errors import InvalidRequest

_PORT_SECONDS = 20.0
_ANSWER_SECONDS = 120.0  # until a machine reports versions, which starts a process


class _RayCluster(Cluster):
    def __init__(self, address: str) -> None:
        self._address = address
        self._is_own = False
        self._under_way: set[Any] = set()

    def connect(self, place: Workplace) -> None:
        if self._address.startswith("ray://"):
            raise InvalidRequest(
                f"--ray-address {self._address}: run the command on a machine of the cluster, with auto"
            )
        if not ray.is_initialized():
            _check_port(self._address)
            handler = signal.getsignal(signal.SIGTERM)
            try:
                ray.init(address=self._address, log_to_driver=False)
            except (ConnectionError, ValueError, RuntimeError) as error:
                reason = str(error).partition("\n")[0]
                raise InvalidRequest(f"--ray-address {self._address}: no Ray cluster answers: {reason}") from error
            finally:
                if threading.current_thread() is threading.main_thread() and handler is not None:
                    signal.signal(signal.SIGTERM, handler)  # Ray replaces the handler
            self._is_own = True
        self._cpus = place.cpus
        if not self._slots():
            raise InvalidRequest(f"--ray-address {self._address}: no machine of the cluster has {place.cpus} CPUs")
        self._compare(place)
        self._place = ray.put(place)
        self._remote = ray.remote(_build).options(num_cpus=place.cpus, max_retries=0, scheduling_strategy="SPREAD")

    def _compare(self, place: Workplace) -> None:
        """Raise InvalidRequest if a machine has other versions than this one. Later machines check themselves."""
        handles = {
            ray.remote(library_versions)
            .options(
                num_cpus=0,
                max_retries=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
            )
            .remote(pixels=compares_pixels(place.versions)): str(node["NodeManagerHostname"])
            for node in ray.nodes()
            if node["Alive"] and node["Resources"].get("CPU", 0) >= place.cpus
        }
        for handle, node in handles.items():
            try:
                found = ray.get(handle, timeout=_ANSWER_SECONDS)
            except RayTaskError as error:  # packer is missing or broken there
                raise InvalidRequest(
                    f"{node}: cannot report its versions: {error.cause}; install packer there"
                ) from error
            except GetTimeoutError as error:
                raise InvalidRequest(f"{node}: no report of its versions for {_ANSWER_SECONDS:.0f} s") from error
            except RayError:  # the machine is gone
                continue
            check_versions(node, place.versions, found)

    def _slots(self) -> int:
        return sum(int(node["Resources"].get("CPU", 0)) // self._cpus for node in ray.nodes() if node["Alive"])

    def submit(self, task: Task) -> Any:
        handle = self._remote.remote([self._place], task)  # in a list, so that Ray does not unpack it for each task
        self._under_way.add(handle)
        return handle

    def wait(self, handles: list[Any], seconds: float) -> tuple[dict[Any, Outcome | Lost], int]:
        ray.wait(handles, num_returns=1, timeout=seconds)
        ready, _ = ray.wait(handles, num_returns=len(handles), timeout=0)
        self._under_way -= set(ready)
        return {handle: _outcome(handle) for handle in ready}, self._slots()

    def drop(self, handle: Any) -> None:
        self._under_way.discard(handle)
        ray.cancel(handle, force=True)

    def close(self) -> None:
        for handle in self._under_way:
            ray.cancel(handle, force=True)
        self._under_way.clear()
        if self._is_own:
            ray.shutdown()


def _check_port(address: str) -> None:
    """Raise InvalidRequest if no server listens at HOST:PORT. Without this check, Ray waits for minutes."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PORT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise InvalidRequest(f"--ray-address {address}: no Ray cluster answers: {error}") from error


def _build(place: list[Any], task: Task) -> Outcome:
    return build_remotely(_unpacked(place[0]), task)


@lru_cache(maxsize=1)
def _unpacked(handle: Any) -> Workplace:
    """Return the object of a Ray handle. The cache avoids that each task unpickles a large plan again."""
    found: Workplace = ray.get(handle)
    return found


def _outcome(handle: Any) -> Outcome | Lost:
    try:
        found: Outcome = ray.get(handle)
    except RayTaskError:  # a bug, which another task would also meet
        raise
    except RayError as error:  # machine, process, or memory
        return Lost(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")
    return found


class Engine(ClusterEngine):
    """Engine that builds parts as tasks of a Ray cluster."""

    def __init__(self, options: EngineOptions) -> None:
        super().__init__(options)
        self.cluster = _RayCluster(options.address or "auto")
