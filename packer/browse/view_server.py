"""View server: serves packs to a browser of this machine until it is interrupted.

uvicorn limits neither the time of a request nor the number of connections. Clients that send or read slowly, or open
many connections, could therefore block the server. `_LimitedHTTP` limits both.
"""

import asyncio
import socket
import webbrowser
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from ipaddress import ip_address
from pathlib import Path
from threading import Thread

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from packer.browse.request_guard import Entrance, RequestGuard
from packer.browse.routes import page_files, routes
from packer.browse.row_queries import BrowsedPack
from packer.copies.remote_pack import read_once
from packer.errors import Interrupted, InvalidRequest
from packer.files.terminal_output import echo
from packer.stores.url import URLPath

_MOST_CONNECTIONS = 256
_MOST_HEADER_BYTES = 16 << 10
_SECONDS_PER_MESSAGE = 30
_SECONDS_IDLE = 5


class _LimitedHTTP(H11Protocol):
    """HTTP of uvicorn with limits: on connections, and on the time to receive a request or to send a response."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        if len(self.connections) > _MOST_CONNECTIONS:
            transport.abort()
        else:
            self._watch()

    def _watch(self) -> None:
        self.loop.call_later(_SECONDS_PER_MESSAGE, self._check, self.cycle)

    def _check(self, before: RequestResponseCycle | None) -> None:
        """Close a connection without a complete message since the last check, unless a response is being computed."""
        if self not in self.connections:
            return
        is_computing = self.cycle is not None and not self.cycle.response_started
        if self.cycle is before and not is_computing:
            self.transport.abort()
        else:
            self._watch()


def serve(
    packs: Sequence[Path],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    opens_browser: bool = True,
    scratch: Path | None = None,
) -> None:
    """Serve one or two packs, print the URL, and return after an interrupt such as Ctrl-C.

    Args:
        packs: Folders or URLs of packs.
        host: Address or name to listen on.
        port: Port, 0 for a free one.
        opens_browser: True opens a browser. False only prints the URL.
        scratch: For packs behind a URL: a local folder for downloaded parts.

    Raises:
        InvalidRequest: A path is not a pack, or the address cannot be used.
        CorruptPack: A pack is damaged.
        StoreError: The store of a URL does not answer.
    """
    with ExitStack() as opened:
        browsed = []
        has_url = any(isinstance(path, URLPath) for path in packs)
        for path in packs:
            is_url = isinstance(path, URLPath)
            used = scratch if is_url or not has_url else None  # without any URL it is an error
            pack = opened.enter_context(read_once(path, scratch=used, in_order=False))
            browsed.append(BrowsedPack(pack, str(path if is_url else path.absolute())))
        listener = opened.enter_context(_listener(host, port))
        entrance = Entrance(host, listener.getsockname()[1])
        application = RequestGuard(routes(browsed, page_files()), entrance)
        if not _is_loopback(host):
            echo(
                f"packer view: warning: {host} is reachable from other machines, and the connection is not encrypted; "
                "who has the URL sees the packs",
                err=True,
            )
        echo(entrance.printed_url(), "Ctrl-C ends the server")
        if opens_browser:
            Thread(target=webbrowser.open, args=(entrance.url_for_one_use(),), daemon=True).start()  # may take seconds
        config = uvicorn.Config(
            application,
            loop="asyncio",
            http=_LimitedHTTP,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",  # packer.browse.routes prints unexpected errors
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=_SECONDS_IDLE,
            timeout_graceful_shutdown=1,
            h11_max_incomplete_event_size=_MOST_HEADER_BYTES,
        )
        with suppress(Interrupted):  # by Ctrl-C, after which uvicorn raises it
            uvicorn.Server(config).run(sockets=[listener])


def _listener(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=_MOST_CONNECTIONS)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # connections inherit it
        return listener
    except OSError as error:
        raise InvalidRequest(
            f"--host {host} --port {port}: {error.strerror or error}; choose another, or none for a free port"
        ) from error


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
