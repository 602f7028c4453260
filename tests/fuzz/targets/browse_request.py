"""Requests of the page of packer view, with the cookie: a path below /api and its parameters."""

import asyncio
import functools
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import numpy as np
from starlette.types import ASGIApp, Message

from packer.browse.request_guard import Entrance, RequestGuard
from packer.browse.routes import routes
from packer.browse.row_queries import BrowsedPack
from packer.pack.reader import Pack
from tests.fuzz import scratch
from tests.fuzz.target import Disagreement
from tests.support.array_packs import BOXES, DEPTH, IMAGE, LABEL, MASK, NOTE, SCORE, displayed, plain

_PORT = 8123
_ANSWERS = {200, 304, 400, 403, 404, 405, 414, 422}
TOKENS = tuple(
    token.encode()
    for token in (
        *("rows?", "histogram?", "export?", "find?", "same?", "differences?", "only?", "sample?", "overlays?", "packs"),
        *("image?", "depth?", "trained?", "original?", "where=", "sort=", "column=", "desc=1", "incomplete=1", "p=1"),
        *("offset=", "count=", "row=", "rows=0,1", "field=image", "field=mask", "field=depth", "width=8", "seed="),
        *("geometry=", "RandomResizedCrop(8)", "Rotate(9)", "len(boxes)", "image.width", "label", "score", "note"),
        *("keys=1", "&", "+and+", "'cat'", ">=", "==", "%00", "%F0", "1e999", "99999999999999999999"),
    )
)


@functools.cache
def _server() -> tuple[ASGIApp, Entrance]:
    samples = [
        {
            "image": plain(5, 6 + number),
            "depth": np.full((5, 6), number / 3, np.float32),
            "mask": np.full((5, 6), number, np.uint8),
            "boxes": np.ones((number, 4), np.float32),
            "label": number,
            "score": np.float32((0.5, np.nan, 3e38)[number]),
            "note": "note" * number,
        }
        for number in range(3)
    ]
    fields = [IMAGE, DEPTH, MASK, BOXES, LABEL, SCORE, NOTE]
    packs = [displayed(scratch.folder() / f"browsed-{count}", fields, samples[:count]) for count in (3, 2)]
    entrance = Entrance("127.0.0.1", _PORT)
    served = [BrowsedPack(Pack(folder), folder.name) for folder in packs]
    return RequestGuard(routes(served, {"index.html": b""}), entrance), entrance


def seeds() -> Iterator[bytes]:
    _server()  # an error in here is no refusal
    yield from (b"packs", b"rows?keys=1&sort=label&desc=1", b"find?key=1", b"same?row=1", b"differences", b"only?p=1")
    yield from (b"histogram?column=score&where=len(boxes)+%3E+0", b"export?where=label+%3D%3D+'cat'&incomplete=1")
    yield from (b"sample?row=1", b"overlays?rows=0,2", b"original?row=0&field=image", b"depth?row=0&field=depth")
    yield from (b"image?row=0&field=mask&width=8", b"trained?row=1&field=image&geometry=RandomResizedCrop(8)&seed=3")


def check(data: bytes) -> None:
    path, _, query = data.partition(b"?")
    status, headers, body = asyncio.run(_answer(b"/api/" + path, query))
    if status not in _ANSWERS:
        raise Disagreement(f"status {status}")
    if headers.get(b"content-type") == b"application/json":
        json.loads(body.decode("ascii"), parse_constant=_refused)


def _refused(text: str) -> Any:
    raise Disagreement(f"JSON with {text}, which no browser reads")


async def _answer(path: bytes, query: bytes) -> tuple[int, dict[bytes, bytes], bytes]:
    app, entrance = _server()
    cookie = f"{entrance.cookie_name}={entrance.cookie}".encode()
    scope = {
        "type": "http",
        "method": "GET",
        "path": unquote(path.decode("latin-1")),
        "raw_path": path,
        "query_string": query,
        "headers": [(b"host", f"127.0.0.1:{_PORT}".encode()), (b"cookie", cookie)],
    }
    messages: list[Message] = []

    async def receive() -> Message:
        await asyncio.sleep(3600)  # the client waits
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        messages.append(message)

    await app(scope, receive, send)
    body = b"".join(message.get("body", b"") for message in messages[1:])
    return messages[0]["status"], dict(messages[0]["headers"]), body
