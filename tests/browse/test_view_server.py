"""View server: the command in a process of its own, with real connections, of which some are slow or too many."""

import contextlib
import http.client
import json
import queue
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from packer.errors import InvalidRequest
from packer.registry import check_installed
from tests.support import warm_python
from tests.support.array_packs import IMAGE, displayed, plain
from tests.support.command_line import called, run

PROGRAM = """
from packer.browse import view_server
view_server._SECONDS_PER_MESSAGE = {seconds}
view_server._MOST_CONNECTIONS = 10
from packer.cli import run
run()
"""


class Server:
    """A server that runs, and requests with its cookie."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.host, self.port = parts.hostname or "", parts.port or 0
        self.cookie = ""
        with self.asked(f"/?{parts.query}") as answer:
            assert answer.status == 303
            self.cookie = (answer.getheader("Set-Cookie") or "").partition(";")[0]

    @contextlib.contextmanager
    def asked(self, path: str, **headers: str) -> Iterator[http.client.HTTPResponse]:
        with contextlib.closing(http.client.HTTPConnection(self.host, self.port, timeout=60)) as connection:
            connection.request("GET", path, headers={"Cookie": self.cookie, **headers})
            yield connection.getresponse()

    def get(self, path: str, **headers: str) -> tuple[int, bytes]:
        with self.asked(path, **headers) as answer:
            return answer.status, answer.read()

    def answers(self) -> bool:
        """Whether it answers once a connection is free."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with contextlib.suppress(ConnectionError):
                return self.get("/api/rows")[0] == 200
        return False

    def connected(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), timeout=60)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    noise = np.random.default_rng(0).integers(0, 256, (2000, 2000, 3), dtype=np.uint8)
    return displayed(tmp_path_factory.mktemp("server") / "a.pack", [IMAGE], [{"image": plain(9, 9)}, {"image": noise}])


@contextlib.contextmanager
def serving(*words: object, seconds: float = 0.2) -> Iterator[tuple[warm_python.Program, Server]]:
    """The command, which leaves a client that does nothing for some seconds."""
    code = PROGRAM.format(seconds=seconds)
    with warm_python.started(code, "view", *map(str, words), "--no-browser", torch=False) as program:
        yield program, Server(program.line())


def test_the_command_serves_until_it_is_interrupted(folder: Path) -> None:
    with serving(folder, folder) as (program, server):
        assert server.host == "127.0.0.1"
        status, content = server.get("/api/packs")
        assert status == 200
        found: Any = json.loads(content)
        assert [pack["samples"] for pack in found["packs"]] == [2, 2]
        assert server.get("/api/image?row=0&field=image&width=8")[0] == 200
        assert server.get("/api/packs", Host=f"evil.example:{server.port}")[0] == 403
        program.send_signal(signal.SIGINT)
        assert program.wait(60) == 0
        assert program.communicate(60)[1] == ""


def test_a_client_that_sends_slowly_is_left(folder: Path) -> None:
    with serving(folder) as (_, server), contextlib.ExitStack() as stack:
        slow = [stack.enter_context(server.connected()) for _ in range(5)]
        for each in slow:
            each.sendall(b"GET /api/packs HTTP/1.1\r\nHost: ")
        assert server.get("/api/rows")[0] == 200
        for each in slow:
            with contextlib.suppress(ConnectionResetError):
                assert each.recv(1) == b""


def test_clients_that_read_slowly_are_left(folder: Path) -> None:
    with serving(folder) as (_, server), contextlib.ExitStack() as stack:
        request = f"GET /api/image?row=1&field=image HTTP/1.1\r\nHost: {server.host}:{server.port}\r\n"
        for _ in range(10):
            slow = stack.enter_context(server.connected())
            with contextlib.suppress(ConnectionError):
                slow.sendall(f"{request}Cookie: {server.cookie}\r\n\r\n".encode())
        assert server.answers()


def test_connections_beyond_the_limit_are_closed(folder: Path) -> None:
    with serving(folder, seconds=1000) as (_, server):
        with contextlib.ExitStack() as stack:
            opened = [stack.enter_context(server.connected()) for _ in range(40)]
            for each in opened[20:]:
                with contextlib.suppress(ConnectionResetError):
                    assert each.recv(1) == b""
        assert server.answers()


def test_what_is_no_http_is_refused(folder: Path) -> None:
    with serving(folder) as (_, server):
        for data in (b"\x16\x03\x01\x02\x00\x01\x00", b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 20_000, b"\r\n" * 100_000):
            with server.connected() as wrong, contextlib.suppress(ConnectionError):
                wrong.sendall(data)
                assert wrong.recv(12) in (b"HTTP/1.1 400", b"")
        assert server.get("/api/rows")[0] == 200


def test_an_address_that_cannot_be_used_is_an_error(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run("view", folder, "--no-browser", "--port", taken.getsockname()[1])
    assert done.returncode == 2
    assert "in use" in done.stderr
    assert run("view", folder, "--no-browser", "--host", "no.invalid").returncode == 2


def test_another_address_is_warned_of(folder: Path) -> None:
    with serving(folder, "--host", "0.0.0.0") as (program, server):  # noqa: S104
        assert server.get("/api/rows")[0] == 200
        program.send_signal(signal.SIGTERM)
        assert "reachable from other machines" in program.communicate(60)[1]


def test_a_browser_gets_a_url_for_one_use(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: queue.Queue[str] = queue.Queue()
    monkeypatch.setattr("webbrowser.open", opened.put)
    monkeypatch.setattr("uvicorn.Server.run", lambda *_, **__: None)
    done = called("view", folder)
    assert done.exit_code == 0, done.output
    url = opened.get(timeout=60)
    assert url not in done.output
    assert url.partition("?")[0] == done.output.partition("?")[0]


def test_a_missing_package_is_one_error_that_names_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    for package in ("starlette", "uvicorn"):
        with pytest.raises(InvalidRequest, match='pip install "starlette>=.*" "uvicorn>='):
            check_installed(package, "packer view")
