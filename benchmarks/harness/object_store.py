"""SeaweedFS, an S3 server in one binary, on ports of its own; its data goes away with it."""

import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path
from urllib.request import Request, urlopen

from benchmarks.harness.environments import Environment

BUCKET = "bench"
SYSTEM = ()
PINS = Path(__file__).parent / "seaweedfs.txt"
_PORTS = ("s3.port", "master.port", "volume.port", "filer.port", "admin.port", "s3.port.iceberg", "s3.port.lance")
_WAIT_S = 60.0
CLIENT = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}


def client_variables(endpoint: str) -> dict[str, str]:
    """The variables that lead S3 clients to an endpoint; the server takes any key."""
    return CLIENT | {
        "AWS_DEFAULT_REGION": CLIENT["AWS_REGION"],
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",  # of obstore
        "S3_ENDPOINT_URL": endpoint,  # of MosaicML Streaming
    }


class SeaweedFS:
    """The server with an empty bucket. folder: for data and log. A context."""

    def __init__(self, environment: Environment, folder: Path) -> None:
        ports = _free_ports(len(_PORTS))
        self.address = ("127.0.0.1", ports[0])
        self.endpoint = f"http://127.0.0.1:{ports[0]}"
        folder.mkdir(parents=True)
        self._log = folder / "log"
        command = [
            *(environment.python.parent / "weed", "mini", f"-dir={folder / 'data'}", "-ip=127.0.0.1"),
            *("-ip.bind=127.0.0.1", f"-bucket={BUCKET}", "-webdav=false", "-master.telemetry=false"),
            *(f"-{name}={port}" for name, port in zip(_PORTS, ports, strict=True)),
        ]
        without = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, cwd=folder, env=without, stdout=log, stderr=log)

    def __enter__(self) -> "SeaweedFS":
        end = time.monotonic() + _WAIT_S
        while not self._is_up():
            if time.monotonic() > end or self._process.poll() is not None:
                self.__exit__()
                raise RuntimeError(f"SeaweedFS does not answer; see {self._log}")
            time.sleep(0.2)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _is_up(self) -> bool:
        """Whether the bucket is there."""
        try:
            return bool(self.sizes("") is not None)
        except OSError:
            return False

    def read(self, key: str) -> bytes:
        """An object."""
        with urlopen(f"{self.endpoint}/{BUCKET}/{key}") as answer:
            data: bytes = answer.read()
            return data

    def write(self, key: str, data: bytes) -> None:
        """Put an object as a tool does that knows nothing of checksums."""
        urlopen(Request(f"{self.endpoint}/{BUCKET}/{key}", data, method="PUT")).close()

    def sizes(self, prefix: str) -> dict[str, int]:
        """Bytes of each object whose key begins so, by its key."""
        found: dict[str, int] = {}
        token = ""
        while True:
            more = f"&continuation-token={token}" if token else ""
            with urlopen(f"{self.endpoint}/{BUCKET}?list-type=2&prefix={prefix}{more}") as answer:
                text = answer.read().decode()
            for key, size in re.findall(r"<Key>([^<]+)</Key>.*?<Size>(\d+)</Size>", text, re.DOTALL):
                found[key] = int(size)
            next_token = re.search(r"<NextContinuationToken>([^<]+)</NextContinuationToken>", text)
            if next_token is None:
                return found
            token = next_token[1]


def _free_ports(count: int) -> list[int]:
    """Ports below those that the system gives to clients; SeaweedFS takes each, and 10000 more, for gRPC."""
    found: list[int] = []
    for port in range(11000, 20000, 7):
        if len(found) == count:
            break
        try:
            for each in (port, port + 10000):
                with socket.socket() as tried:
                    tried.bind(("127.0.0.1", each))
        except OSError:
            continue
        found.append(port)
    return found
