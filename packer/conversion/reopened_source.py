"""Reopened source: the source of a pack, opened again with the options in the manifest.

Samples are found by their keys. If the source does not open as it was packed, it is opened with options that skip bad
files, so that the other samples can be compared.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from packer import sources
from packer.conversion.encode import SampleEncoder
from packer.conversion.options import ConversionOptions
from packer.conversion.plan import Plan
from packer.errors import BadInput, CorruptPack, InvalidRequest, PackerError
from packer.files.safe_paths import components
from packer.geometry import Resize, View, identity
from packer.images.backends import pillow
from packer.pack.extra_files import ChosenExtras
from packer.pack.reader import Pack
from packer.pack.source_paths import SELECTED, SourcePath, SourcePaths, asked_of_source, conversions
from packer.schema import MOST_PIXELS, PIXEL_KINDS, Field, Schema
from packer.sources._extend.mask_colors import MaskColors, add_mask_colors
from packer.sources._extend.sidecars import Sidecar, add_sidecars
from packer.sources._file_pattern import stored_path
from packer.sources._options import UNCHECKED
from packer.sources._trees.file_tree import FileTree, most_file_bytes
from packer.sources._trees.folder_tree import SourceRoot
from packer.sources._trees.open_tree import open_tree
from packer.sources.base import Sample, SampleEntry, Source, place

_TOLERANT = {"missing": "skip", "labels": "lenient", "duplicates": "first"}
_ELSEWHERE_OPTIONS = ("labels_from",)  # name a folder outside of the source


class ReopenedSource:
    """The source of one pack.

    Attributes:
        folder: the tree of its files.
        source: None if it cannot be opened.
        problem: why it does not open as it was packed, or empty.
        given: the options in the manifest.
        sidecars: by name.
        holds_records: see Source.
    """

    def __init__(self, pack: Pack, root: Path) -> None:
        """Open the source.

        Args:
            pack: the pack.
            root: the folder, archive, or file.

        Raises:
            PackerError: there is no such folder, or the source is one of records and does not open.
        """
        self.problem = ""
        self.source: Source | None = None
        self._pack = pack
        self._root = root
        self._conversions = conversions(pack.manifest.options)
        self._recorded = asked_of_source(pack.manifest.options)
        given = self._recorded.get("options")
        self.given: dict[str, Any] = given if isinstance(given, dict) else {}
        recorded = self._recorded.get("sidecars")
        parsed = [Sidecar.parse(str(text)) for text in recorded] if isinstance(recorded, list) else []
        self.sidecars = {sidecar.name: sidecar for sidecar in parsed}
        kind = pack.manifest.source.get("kind")
        self._maker = sources.load(str(kind)).Source if kind in sources.names() else None
        self.holds_records = self._maker is not None and self._maker.holds_records
        self.folder = self._opened()
        for tree in (self.folder, self.source.folder if self.source else self.folder):
            tree.most_bytes = most_file_bytes(max(field.pixel_limit for field in pack.schema))
        self._listed: Source | None = self.source  # without sidecars
        self._colors = self._mask_colors()
        self._with_sidecars()
        self._rows = self._found_rows()

    # ---- opening it

    def _opened(self) -> FileTree:
        """Open the source and return the tree of its files."""
        if self._maker is not None and self._maker.holds_records:
            self.source = self._maker(self._root, **self._options(self._maker))
            return self.source.folder
        root, maker = self._root, self._maker
        takes_files = maker is not None and maker.recognize(SourceRoot(root.parent), [root.name]) is not None
        follow_links = self.given.get("follow_links") is True
        folder = open_tree(self._root, follow_links=follow_links, takes_files=takes_files)
        if self._maker is None or self._recorded.get("places"):
            return folder
        # a lone file names the others
        place = self._root if self._root.is_file() and folder.contents is None else folder
        options = self._options(self._maker)
        try:
            self.source = self._maker(place, **options)
        except PackerError as error:
            self.problem = str(error)
            tolerant = {name: word for name, word in _TOLERANT.items() if name in self._maker.defaults()}
            with suppress(PackerError):
                self.source = self._maker(place, **options | tolerant)
        return folder

    def _options(self, maker: type[Source]) -> dict[str, Any]:
        """Return the options of the source in the manifest; raises CorruptPack for ill-formed ones.

        A manifest is untrusted: paths in it must stay inside of the source.
        """
        options: dict[str, Any] = {}
        for name, default in maker.defaults().items():
            if name not in self.given or name in _ELSEWHERE_OPTIONS:
                continue
            value = self.given[name]
            value = tuple(value) if isinstance(value, list) else value
            if type(value) is not type(default) or (
                isinstance(value, tuple) and not all(isinstance(each, str) for each in value)
            ):
                raise CorruptPack(
                    f"{self._pack.folder}: the manifest has an ill-formed option {name!r} of its source: "
                    f"{self.given[name]!r:.80}; pack again from the source"
                )
            for path in value if name == "annotations" else ():
                components(path.removeprefix("./"))
            options[name] = value
        if "layout" in maker.defaults():
            options.setdefault("layout", UNCHECKED)  # convert has accepted the layout
        if "ignore_suffixes" in maker.defaults():
            options["ignore_suffixes"] = tuple(sidecar.suffix for sidecar in self.sidecars.values())
        if "own_splits" in maker.defaults() and self._recorded.get("splits"):
            options["own_splits"] = False
        return options

    @property
    def _places(self) -> dict[str, Any]:
        """Options that named files outside of the source."""
        places = self._recorded.get("places")
        return places if isinstance(places, dict) else {}

    def _with_sidecars(self) -> None:
        """Add the sidecars and the colors of masks.

        A sample without its sidecar file is then not in the source: reading that file by its path reports it.
        """
        if self.source is not None and self.sidecars and not self.holds_records:
            with suppress(PackerError):
                decoder = str(self.given.get("decode_with", "none"))
                added = list(self.sidecars.values())
                self.source = add_sidecars(self.source, added, missing="skip", decode_with=decoder)
        if self.source is not None and self._colors:
            with suppress(PackerError):
                self.source = add_mask_colors(self.source, list(self._colors.values()))

    def _mask_colors(self) -> dict[str, MaskColors]:
        """Return the color tables of masks in the manifest; raises CorruptPack for ill-formed ones."""
        kept = self._recorded.get("mask_colors", {})
        if not isinstance(kept, dict):
            raise CorruptPack(f"{self._pack.folder}: the manifest has ill-formed mask_colors; pack again")
        try:
            return {name: MaskColors.from_json(name, said) for name, said in kept.items()}
        except InvalidRequest as error:
            raise CorruptPack(f"{self._pack.folder}: the manifest: {error.message}; pack again") from error

    def _found_rows(self) -> "np.ndarray[Any, np.dtype[np.int64]]":
        """Return the row in the source for each sample of the pack; -1 for none."""
        rows = np.full(len(self._pack), -1, np.int64)
        for row, key in _keys(self.source):
            if (found := self._pack.index.find(key)) is not None:
                rows[found] = row
        return rows

    # ---- its samples

    def row(self, index: int) -> int | None:
        """Return the row in the source of a sample of the pack; None if the source does not have it."""
        found = int(self._rows[index])
        return None if found < 0 else found

    def further(self) -> Iterator[str]:
        """Yield keys of samples that the pack neither has nor lists as skipped; none if rows were selected."""
        if any(SELECTED in recorded.get("source", {}) for recorded in self._conversions):
            return
        skipped = {key for key, _ in self._pack.manifest.skipped}
        for _, key in _keys(self._listed):
            if self._pack.index.find(key) is None and key not in skipped:
                yield key

    # ---- its fields

    def why_not(self, field: Field) -> str:
        """Return why a field cannot be compared with the source."""
        if (field.name == "split" and self._recorded.get("splits")) or self._places:
            return "is made of an option or of files that a pack does not contain"
        if self.source is None:
            return "the source cannot be opened as it was packed"
        return "no sample of it could be read from the source"

    def is_ours(self, field: Field) -> bool:
        """Whether the field comes from the source itself, so that its absence there is a difference."""
        if self.source is None or self._places or field.name in self.sidecars:
            return False
        return not (field.name == "split" and self._recorded.get("splits"))

    def is_left_out(self, field: Field) -> bool:
        """Whether the options of a conversion exclude a field from the pack."""
        is_chosen = any(recorded.get("fields") for recorded in self._conversions)
        return is_chosen or (field.hidden and field.kind == "bytes" and self.moves_pixels)

    # ---- where its pixels went

    @property
    def moves_pixels(self) -> bool:
        """Whether one of the conversions moved pixels."""
        return any(recorded.get("resize") or recorded.get("exif") == "rotate" for recorded in self._conversions)

    @property
    def is_one_step(self) -> bool:
        """Whether a single conversion made the pack, so that pixels moved at most once."""
        return len(self._conversions) == 1

    # ---- encoding its samples again

    @staticmethod
    def exact_field(field: Field) -> Field:
        """Return a field that holds any pixels of this one without loss."""
        shape = (None, None, 3) if field.kind == "image" else (None, None)
        if field.kind == "depth":
            return replace(field, codec="raw:float64", dtype="float64", shape=shape)
        return replace(field, codec="raw", dtype="uint16" if field.is_wide_mask else "uint8", shape=shape)

    def encoders(self, source: Source) -> tuple[SampleEncoder, SampleEncoder]:
        """Return an encoder that stores pixels without loss, and one that encodes as the conversion did.

        Both do all other things as the conversions did. Raises InvalidRequest for ill-formed options of the manifest.
        """
        first = self._conversions[0]
        frame = first.get("sidecar_frame")
        sizes = [str(recorded["resize"]) for recorded in self._conversions if recorded.get("resize")]
        options = ConversionOptions(
            to=self._pack.manifest.format,
            resize=sizes[-1] if sizes else None,
            exif="rotate" if first.get("exif") == "rotate" else "ignore",
            validate="header",
            max_pixels=MOST_PIXELS,
            sidecar_frame="upright" if frame == "upright" else "stored" if frame == "stored" else None,
        )
        fields = [field for field in self._pack.schema if field.name in source.schema]
        chosen = first.get("codecs")
        named = chosen if isinstance(chosen, dict) else {}
        defaulted = {field.name for field in fields if sizes and field.kind in PIXEL_KINDS} - named.keys()
        exact = [self.exact_field(field) if field.kind in PIXEL_KINDS else field for field in fields]
        plan = _Replayed(
            source=source,
            options=options,
            schema=Schema(tuple(exact)),
            parts=(),
            sizes=np.zeros(0, np.int64),
            file_count=0,
            digest="",
            fingerprint="",
            defaulted=frozenset(defaulted),
            extras=ChosenExtras(),
            resizes=tuple(map(Resize.parse, sizes)),
        )
        return SampleEncoder(plan), SampleEncoder(replace(plan, schema=Schema(tuple(fields))))


@dataclass(frozen=True)
class _Resizes(Resize):
    """Several resizes, one after another. size: that of the last."""

    steps: tuple[Resize, ...] = ()

    def view(self, height: int, width: int, random: Any = ()) -> View:
        view = identity(height, width)
        for step in self.steps:
            view = view.then(step.view(*view.size))
        return view


@dataclass(frozen=True)
class _Replayed(Plan):
    """The plan of all conversions from the original data to a pack, for encoding alone: it has no parts."""

    resizes: tuple[Resize, ...] = ()

    @cached_property
    def resize(self) -> Resize | None:
        return _Resizes(self.resizes[-1].size, steps=self.resizes) if self.resizes else None


class NamedFiles(Source):
    """The files that a pack names, as a source, for samples that the reopened source does not have."""

    kind = "files"

    def __init__(self, pack: Pack, reopened: ReopenedSource) -> None:
        self.root = reopened.folder.root
        self.schema = pack.schema
        self.decodes = reopened.given.get("decode_with") == "pillow"
        self.companions = tuple(reopened.sidecars)
        self.folder = reopened.folder
        self._pack = pack
        self._sidecars = reopened.sidecars
        self._paths = SourcePaths(pack, needs_files=False)

    def __len__(self) -> int:
        return len(self._pack)

    def entry(self, index: int) -> SampleEntry:
        key = self._pack.index.key(index)
        return SampleEntry(key, tuple(origin.path for origin in self._paths.of(index)), key)

    def read(self, index: int, names: Sequence[str]) -> Sample:
        return {origin.name: self.read_origin(index, origin) for origin in self._paths.of(index)}

    def read_origin(self, index: int, origin: SourcePath) -> Any:
        """Return the bytes of a file, the value of a JSON file, or the pixels of a file that only Pillow decodes.

        Raises PackerError for a file that cannot be read, and for a path that leads out of the folder.
        """
        components(origin.path)
        sidecar = self._sidecars.get(origin.name)
        is_decoded = self.decodes and (
            sidecar.needs_pillow if sidecar is not None else origin.path == f"{self.key(index)}.png"
        )
        path = origin.path.removesuffix(".png") if is_decoded else origin.path
        folder = self.folder
        if sidecar is not None and sidecar.outside is not None:
            above = sidecar.outside.removesuffix(stored_path(sidecar.outside))
            folder, path = place(folder, (sidecar.outside,), above + path)
        data = folder.read(path)
        kind = origin.field.kind if origin.field is not None else "bytes"
        if is_decoded:
            return pillow.decode(data, path, kind)
        if kind != "json":
            return data
        try:
            return json.loads(data.decode("utf-8-sig"))
        except (ValueError, RecursionError) as error:
            raise BadInput(f"the file is not JSON: {error}") from error


def _keys(source: Source | None) -> Iterator[tuple[int, str]]:
    """Yield the row and the key of each sample."""
    if source is not None:
        yield from ((row, source.key(row)) for row in range(len(source)))
