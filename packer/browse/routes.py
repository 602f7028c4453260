"""Routes: the URLs of `packer view`, and the functions that answer them with files, JSON or images.

Arguments are numbers, names, filters and geometries. No request contains a path. An error is {"error": text}.
"""

import asyncio
import os
import traceback
import zlib
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any

import numpy.typing as npt
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from packer.browse.pack_comparison import PackComparison
from packer.browse.request_guard import json_response, refusal
from packer.browse.row_queries import MOST_EXPORTED, BrowsedPack
from packer.browse.sample_images import FILE, MOST_WIDTH, ImageFile, Training
from packer.browse.sized_cache import SizedCache
from packer.errors import BadIndex, BadInput, CorruptPack, InvalidRequest, PackerError, UnknownKey
from packer.files.terminal_output import echo
from packer.geometry import parsing
from packer.system.parallel import usable_cores

_MEDIA_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_IMAGE_BYTES = 64 << 20  # of thumbnails, encoded
_MOST_ROWS = 2000  # of one answer
_MOST_OVERLAYS = 100
_MOST_GEOMETRY = 500  # characters
_VERSION_CHARACTERS = 12  # of the pack_id in a URL
_FOREVER = "private, max-age=31536000, immutable"
# classes of errors -> status; the first that fits
_STATUS = (((BadIndex, UnknownKey), 404), ((BadInput, CorruptPack), 422), ((InvalidRequest,), 400))


def page_files() -> dict[str, bytes]:
    """Return the content of each file of the page, by file name."""
    folder = files("packer.browse") / "page"
    return {
        file.name: file.read_bytes()
        for file in (folder.iterdir() if folder.is_dir() else ())
        if os.path.splitext(file.name)[1] in _MEDIA_TYPES
    }


def routes(packs: Sequence[BrowsedPack], page: Mapping[str, bytes]) -> Starlette:
    """Return the ASGI application that serves the page, without `RequestGuard`.

    Args:
        packs: One pack, or two packs to compare.
        page: The content of each file of the page, by file name. One file is index.html.
    """
    served = _Served(packs)
    of_rows = served.packs, served.rows, served.histogram, served.export, served.same
    of_pairs = served.differences, served.only
    of_samples = served.sample, served.overlays, served.image, served.depth, served.trained, served.original

    async def static(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in page:
            return refusal(404, "no such file of the page")
        media_type = f"{_MEDIA_TYPES[os.path.splitext(name)[1]]}; charset=utf-8"
        return Response(page[name], media_type=media_type, headers={"Cache-Control": "no-cache"})

    table = [Route("/", static), Route("/page/{name}", static)]
    gates = {of_rows + of_pairs: asyncio.Semaphore(2), of_samples: asyncio.Semaphore(max(2, usable_cores()))}
    for answers, gate in gates.items():
        table += [Route(f"/api/{answer.__name__}", _in_thread(answer, gate)) for answer in answers]
    handlers = {PackerError: _refused, HTTPException: _not_served, Exception: _failed}
    application = Starlette(routes=table, exception_handlers=handlers)
    application.router.redirect_slashes = False
    return application


def _in_thread(answer: Callable[["_Query"], Response], gate: asyncio.Semaphore) -> Callable[[Request], Any]:
    """Return an endpoint that calls `answer` in a thread, unless the client is gone. `gate` limits concurrent calls."""

    async def endpoint(request: Request) -> Response:
        async with gate:
            if await request.is_disconnected():
                return Response(status_code=499)
            return await run_in_threadpool(answer, _Query(request))

    return endpoint


def _refused(_: Request, error: Exception) -> Response:
    return refusal(next((code for kinds, code in _STATUS if isinstance(error, kinds)), 503), str(error))


def _not_served(_: Request, error: Exception) -> Response:
    return refusal(error.status_code if isinstance(error, HTTPException) else 404, "no such page")


def _failed(_: Request, error: Exception) -> Response:
    echo(*"".join(traceback.format_exception(error)).rstrip("\n").split("\n"), err=True)
    echo("packer view: unexpected error, please report it with the lines above", err=True)
    return refusal(500, "unexpected error, see the terminal of packer view")


class _Query:
    """The parameters of a request. Each method raises InvalidRequest for a value that is not allowed."""

    def __init__(self, request: Request) -> None:
        self._values = request.query_params
        self.etag = request.headers.get("if-none-match")

    def text(self, name: str) -> str:
        return self._values.get(name, "")

    def number(self, name: str, most: int, *, default: int = 0) -> int:
        text = self._values.get(name) or str(default)
        if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= most):
            raise InvalidRequest(f"{name}={text!r:.40}: expected a whole number from 0 to {most}")
        return int(text)

    def flag(self, name: str) -> bool:
        return bool(self.number(name, 1))


class _Served:
    """Answers to requests. Each public method answers the route /api/NAME, where NAME is the name of the method."""

    def __init__(self, packs: Sequence[BrowsedPack]) -> None:
        self._packs = packs
        self._comparison = PackComparison(packs[0], packs[1]) if len(packs) == 2 else None
        self._images: SizedCache[ImageFile] = SizedCache(_IMAGE_BYTES, lambda encoded: len(encoded.data))

    def _pack(self, query: _Query) -> BrowsedPack:
        return self._packs[query.number("p", len(self._packs) - 1)]

    # ---- all rows

    def packs(self, _: _Query) -> Response:
        return json_response({"packs": [pack.description() for pack in self._packs]})

    def rows(self, query: _Query) -> Response:
        pack = self._pack(query)
        rows = pack.rows(query.text("where"), sort=query.text("sort"), descending=query.flag("desc"))
        return self._window(query, rows, has_keys=query.flag("keys"))

    def only(self, query: _Query) -> Response:
        return self._window(query, self._compared().only(query.number("p", 1)), has_keys=True)

    def _window(self, query: _Query, rows: npt.NDArray[Any], *, has_keys: bool) -> Response:
        pack, start = self._pack(query), query.number("offset", 1 << 40)
        window = rows[start : start + query.number("count", _MOST_ROWS, default=_MOST_ROWS)].tolist()
        keys = {"keys": [pack.key(row) for row in window]} if has_keys else {}
        return json_response({"total": len(rows), "rows": window, **keys})

    def histogram(self, query: _Query) -> Response:
        return json_response(self._pack(query).histogram(query.text("column"), query.text("where")))

    def export(self, query: _Query) -> Response:
        count, is_descending = query.number("count", MOST_EXPORTED), query.flag("desc")
        pack, sort = self._pack(query), query.text("sort")
        return json_response(pack.export(query.text("where"), count, sort=sort, descending=is_descending))

    def same(self, query: _Query) -> Response:
        if len(self._packs) < 2:
            return json_response({"row": None})
        key = self._pack(query).key(query.number("row", 1 << 40))
        return json_response({"row": self._packs[1 - query.number("p", 1)].pack.index.find(key)})

    def differences(self, query: _Query) -> Response:
        count = query.number("count", _MOST_ROWS, default=_MOST_ROWS)
        return json_response(self._compared().differences(query.text("field"), query.number("offset", 1 << 40), count))

    def _compared(self) -> PackComparison:
        if self._comparison is None:
            raise InvalidRequest("one pack is open; packer view PACK PACK2 compares two")
        return self._comparison

    # ---- one sample

    def sample(self, query: _Query) -> Response:
        training = self._training(query) if query.text("geometry") else None
        return json_response(self._pack(query).sample(query.number("row", 1 << 40), query.text("where"), training))

    def overlays(self, query: _Query) -> Response:
        pack = self._pack(query)
        numbers = query.text("rows").split(",")
        if len(numbers) > _MOST_OVERLAYS or not all(each.isascii() and each.isdigit() for each in numbers):
            raise InvalidRequest(f"rows=: expected at most {_MOST_OVERLAYS} row numbers, separated by commas")
        samples = []
        for row in (int(each[:20]) for each in numbers):
            try:
                samples.append(pack.overlays(row, query.text("where")))
            except CorruptPack as error:
                samples.append({"row": row, "key": pack.key(row), "error": str(error)})
        return json_response({"samples": samples})

    def image(self, query: _Query) -> Response:
        width = query.number("width", MOST_WIDTH)
        make = ("image", width)
        return self._file(query, lambda pack, row, name: pack.images.image(row, name, width), make, is_kept=width > 0)

    def trained(self, query: _Query) -> Response:
        training = self._training(query)
        make = ("trained", query.text("geometry"), training.seed)
        return self._file(query, lambda pack, row, name: pack.images.trained(row, name, training), make)

    def _training(self, query: _Query) -> Training:
        text = query.text("geometry")
        if len(text) > _MOST_GEOMETRY:
            raise InvalidRequest(f"geometry=: expected at most {_MOST_GEOMETRY} characters")
        return Training(parsing.parse(text), query.number("seed", (1 << 63) - 1))

    def original(self, query: _Query) -> Response:
        return self._file(query, lambda pack, row, name: pack.images.original(row, name), ("original",), is_kept=False)

    def depth(self, query: _Query) -> Response:
        pack, row, name = self._place(query)
        depth = pack.images.depth(row, name)
        return Response(depth.tobytes(), media_type=FILE, headers={"Cache-Control": "no-store"})

    def _place(self, query: _Query) -> tuple[BrowsedPack, int, str]:
        pack, row = self._pack(query), query.number("row", 1 << 40)
        pack.key(row)  # the row exists
        return pack, row, pack.pack.schema[query.text("field")].name

    def _file(
        self,
        query: _Query,
        make: Callable[[BrowsedPack, int, str], ImageFile],
        form: tuple[str | int, ...],
        *,
        is_kept: bool = True,
    ) -> Response:
        """Return the file that `make` makes of a field. `form` names the kind of file, and is part of the cache keys.

        With `is_kept`, the server caches the file. The browser may cache it if the URL has the id of the pack.
        """
        pack, row, name = self._place(query)
        pack_id = pack.pack.manifest.pack_id
        etag = f'"{pack_id[:32]}-{row}-{name}-{zlib.crc32(repr(form).encode()):08x}"'
        is_versioned = query.text("v") == pack_id[:_VERSION_CHARACTERS]
        headers = {"ETag": etag, "Cache-Control": _FOREVER if is_versioned else "no-cache"}
        if query.etag == etag:
            return Response(status_code=304, headers=headers)
        key = query.number("p", 1), row, name, form
        made = self._images.get(key, lambda: make(pack, row, name)) if is_kept else make(pack, row, name)
        return Response(made.data, media_type=made.media_type, headers=headers)
