"""Servers of object stores that scripts/foreign makes, each with an empty bucket, on ports of this machine alone."""

import base64
import hashlib
import hmac
import os
import signal
import socket
import subprocess
import time
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path
from urllib.error import URLError

import pytest

_MADE = Path(__file__).resolve().parents[2] / ".foreign"
_WAIT_S = 90.0
_SEAWEED_PORTS = (
    *("s3.port", "master.port", "volume.port", "filer.port"),
    *("admin.port", "s3.port.iceberg", "s3.port.lance"),
)
BUCKET = "packer"


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens at."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class StoreServer(ABC):
    """A server in a process of its own; `kill` and `start` again keep port and data.

    url: of its bucket. environment: the variables that lead a client there. keeps_conditions: whether it refuses to
    create an object that is there. keeps_ranges: whether it answers a request for a range with the range.
    """

    name: str
    url: str
    environment: dict[str, str]
    keeps_conditions = True
    keeps_ranges = True
    ends_with = signal.SIGKILL

    def __init__(self, folder: Path) -> None:
        if not (_MADE / self.name / "complete").exists():
            pytest.skip(f"no environment of {self.name}: scripts/foreign {self.name} makes it")
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """What runs it."""

    @abstractmethod
    def ask(self) -> None:
        """Ask for, or make, the bucket; raises OSError while the server is not up."""

    def start(self) -> None:
        """Start it, and wait until its bucket is there."""
        without = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "AZURE_"))}
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), cwd=self.folder, env=without, stdout=log, stderr=log, start_new_session=True
            )
        until = time.monotonic() + _WAIT_S
        while True:
            try:
                self.ask()
                return
            except OSError:
                assert time.monotonic() < until and self._process.poll() is None, (self.folder / "log").read_text()
                time.sleep(0.1)

    def kill(self) -> None:
        """End all of its processes."""
        if self._process is not None:
            os.killpg(self._process.pid, self.ends_with)
            self._process.wait()
            self._process = None


def _opened(request: urllib.request.Request) -> None:
    with urllib.request.urlopen(request, timeout=10) as answer:
        answer.read()


class _S3Server(StoreServer):
    url = f"s3://{BUCKET}"

    def __init__(self, folder: Path, port: int) -> None:
        super().__init__(folder)
        self.port = port
        self.environment = {
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        }

    def ask(self) -> None:
        _opened(urllib.request.Request(f"http://127.0.0.1:{self.port}/{BUCKET}?list-type=2"))


class SeaweedFS(_S3Server):
    """SeaweedFS in one process."""

    name = "seaweedfs"

    def __init__(self, folder: Path) -> None:
        self._ports = dict(zip(_SEAWEED_PORTS, free_ports(len(_SEAWEED_PORTS)), strict=True))
        super().__init__(folder, self._ports["s3.port"])

    def command(self) -> list[str]:
        return [
            *(str(_MADE / "seaweedfs/bin/weed"), "mini", f"-dir={self.folder / 'data'}", "-ip=127.0.0.1"),
            *("-ip.bind=127.0.0.1", f"-bucket={BUCKET}", "-webdav=false", "-master.telemetry=false"),
            *(f"-{name}={port}" for name, port in self._ports.items()),
        ]


class Rclone(_S3Server):
    """rclone's S3 server over a folder, which ignores If-None-Match and Range."""

    name = "rclone"
    keeps_conditions = keeps_ranges = False

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, *free_ports(1))
        (folder / "data" / BUCKET).mkdir(parents=True)

    def command(self) -> list[str]:
        program = str(_MADE / "rclone/bin/rclone")
        return [program, "serve", "s3", "--addr", f"127.0.0.1:{self.port}", str(self.folder / "data")]


class Azurite(StoreServer):
    """Azurite, Microsoft's emulator of Azure's blobs, with the account and key that its documentation names."""

    name = "azurite"
    ends_with = signal.SIGTERM  # its list of blobs is written every few seconds, and at its end
    url = f"az://{BUCKET}"
    _ACCOUNT = "devstoreaccount1"
    _KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (self._port,) = free_ports(1)
        self._endpoint = f"http://127.0.0.1:{self._port}/{self._ACCOUNT}"
        self.environment = {
            "AZURE_STORAGE_ACCOUNT_NAME": self._ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": self._KEY,
            "AZURE_STORAGE_ENDPOINT": self._endpoint,
        }

    def command(self) -> list[str]:
        program = str(_MADE / "azurite/node_modules/.bin/azurite-blob")
        return [
            *(program, "--silent", "--disableTelemetry", "--skipApiVersionCheck", "--blobHost", "127.0.0.1"),
            *("--blobPort", str(self._port), "--location", str(self.folder / "data")),
        ]

    def ask(self) -> None:
        """Make the container, signed as "Authorize with Shared Key" of Azure Storage's documentation has it."""
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
        lines = ["PUT", *[""] * 11, *(f"{name}:{value}" for name, value in headers.items())]
        signed = "\n".join([*lines, f"/{self._ACCOUNT}/{self._ACCOUNT}/{BUCKET}", "restype:container"])
        found = hmac.new(base64.b64decode(self._KEY), signed.encode(), hashlib.sha256).digest()
        headers["Authorization"] = f"SharedKey {self._ACCOUNT}:{base64.b64encode(found).decode()}"
        url = f"{self._endpoint}/{BUCKET}?restype=container"
        try:
            _opened(urllib.request.Request(url, method="PUT", headers={**headers, "Content-Length": "0"}))
        except URLError as error:
            if getattr(error, "code", None) != 409:  # it is there
                raise


SERVERS: dict[str, Callable[[Path], StoreServer]] = {each.name: each for each in (SeaweedFS, Rclone, Azurite)}
