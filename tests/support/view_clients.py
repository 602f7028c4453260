"""Clients of the server of packer view, in this process: starlette's, with or without the cookie."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from packer.browse.request_guard import Entrance, RequestGuard
from packer.browse.routes import routes
from packer.browse.row_queries import BrowsedPack
from packer.copies.remote_pack import read_once
from packer.pack.reader import Pack

PORT = 8123
ADDRESS = f"127.0.0.1:{PORT}"
PAGE = {"index.html": b"<!doctype html>", "app.js": b"export {}", "style.css": b"a {}"}


class View:
    """A server over packs. `client` has the cookie, `stranger` has not."""

    def __init__(self, packs: list[Pack], entrance: Entrance) -> None:
        self.packs = packs
        self.entrance = entrance
        browsed = [BrowsedPack(pack, str(pack.folder)) for pack in packs]
        app = RequestGuard(routes(browsed, PAGE), entrance)
        self.stranger = TestClient(app, base_url=f"http://{ADDRESS}", follow_redirects=False)
        cookies = {entrance.cookie_name: entrance.cookie}
        self.client = TestClient(app, base_url=f"http://{ADDRESS}", follow_redirects=False, cookies=cookies)

    def json(self, route: str, **parameters: Any) -> Any:
        """The JSON of an answer with status 200."""
        answer = self.client.get(f"/api/{route}", params=parameters)
        assert answer.status_code == 200, answer.text
        return answer.json()


@contextmanager
def view_of(*packs: Path) -> Iterator[View]:
    """The server over packs in folders or behind URLs."""
    with ExitStack() as stack:
        opened = [stack.enter_context(read_once(pack, in_order=False)) for pack in packs]
        yield View(opened, Entrance("127.0.0.1", PORT))
