"""Sheet: the chosen samples as tiles under a title and a legend; png_sheet and html_sheet give it a form."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from packer.errors import InvalidRequest
from packer.inspect.contact_sheet.legend import Mark, merged
from packer.inspect.contact_sheet.tile import Tile, Tiler
from packer.pack.reader import Pack
from packer.remote.read_once import read_once
from packer.stores.url import URLPath
from packer.system.parallel import ordered_map


def choose(pack: Pack, *, count: int, keys: Sequence[str] = (), seed: int | None = None) -> list[int]:
    """Indices of the samples: those with the keys, in that order, else `count` of them spread over the whole pack.

    The pack is cut into `count` stretches: of each the first sample, or with a seed one drawn from it. Raises
    UnknownKey, and InvalidRequest for a pack without samples.
    """
    if keys:
        return [pack.index.index_of(key) for key in keys]
    if not len(pack):
        raise InvalidRequest(f"{pack.folder}: the pack has no sample to show; packer info says what was left out")
    count = min(count, len(pack))
    starts = [number * len(pack) // count for number in range(count + 1)]
    if seed is None:
        return starts[:-1]
    random = np.random.default_rng(seed)
    return [int(random.integers(low, high)) for low, high in zip(starts, starts[1:], strict=False)]


# ---- the sheet

_NOTE = "depth colours: 1st to 99th percentile of each picture"


@dataclass(frozen=True)
class SheetRequest:
    """What a sheet shall show. keys: these samples; else `count`, spread evenly or, with a seed, drawn.

    fields: None for all that can be shown. width: of one picture's place in px. most: shapes of one field, 0 for all.
    zoom: only the part of each sample that its grasps and boxes are in.
    """

    count: int = 24
    keys: tuple[str, ...] = ()
    fields: tuple[str, ...] | None = None
    seed: int | None = None
    width: int = 240
    most: int = 12
    zoom: bool = False


class Sheet(NamedTuple):
    """title and note: plain text. box: (height, width) of the place of one picture, of which a tile has `columns`."""

    title: str
    note: str
    tiles: tuple[Tile, ...]
    marks: tuple[Mark, ...]
    box: tuple[int, int]
    columns: int


def make_sheet(pack: Path, wanted: SheetRequest, *, scratch: Path | None = None, threads: int = 1) -> Sheet:
    """The sheet of a pack in a folder, or at a URL, whose parts with these samples alone are fetched, see `read_once`.

    Raises InvalidRequest, UnknownKey, CorruptPack; StoreError of a URL.
    """
    name = pack.name if isinstance(pack, URLPath) else pack.absolute().name
    with read_once(pack, scratch=scratch, in_order=False) as opened:
        return sheet_of(opened, name, wanted, threads=threads)


def sheet_of(pack: Pack, name: str, wanted: SheetRequest, *, threads: int = 1) -> Sheet:
    """The sheet of an open pack. name: for the title. Raises as `make_sheet`."""
    tiler = Tiler(pack, wanted.fields, most=wanted.most, is_zoomed=wanted.zoom)
    indices = choose(pack, count=wanted.count, keys=wanted.keys, seed=wanted.seed)
    box = tiler.box(indices, wanted.width)
    tiles = tuple(ordered_map(lambda index: tiler.tile(index, box), indices, threads=threads))
    what = "samples, close-ups" if wanted.zoom else "samples"
    title = f"{name}: {len(tiles)} of {len(pack)} {what}, format {pack.manifest.format}"
    has_depth = any(panel.scale is not None for tile in tiles for panel in tile.panels)
    return Sheet(
        title,
        _NOTE if has_depth else "",
        tiles,
        merged(mark for tile in tiles for mark in tile.marks),
        box,
        len(tiler.columns),
    )
