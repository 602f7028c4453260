"""Source spec: the options that select a source. `SourceSpec.open` returns the source with sidecars and splits."""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from packer import sources
from packer.conversion.options import preset_source_options
from packer.errors import BadInput, InvalidRequest, naming_memory
from packer.pack import manifest as manifests
from packer.pack.derived_pack import FolderRecipe, PackRecipe
from packer.sources import _recognition
from packer.sources._option_table import INTERNAL, OPTIONS, UNCHECKED, flag
from packer.sources._trees.file_tree import FileTree
from packer.sources._trees.folder_scan import scan
from packer.sources._trees.open_tree import open_tree
from packer.sources.base import Source
from packer.stores.url import URLPath, path_or_url

if TYPE_CHECKING:
    from packer.conversion.pack_source import PackSource
    from packer.sources._extend.mask_colors import MaskColors
    from packer.sources._extend.sidecars import Sidecar
    from packer.sources._extend.splits import Lists, Shares

_NAMED = 5  # sources in a message
_PACK_AT_URL = "a pack is packed again from a disk: packer stage brings it there"


def parameters(given: Mapping[str, object]) -> dict[str, Any]:
    """Return the constructor arguments of a source for option values by name. Unset options are omitted."""
    plain = {OPTIONS[name].parameter: OPTIONS[name].plain(value) for name, value in given.items()}
    if plain.get("known_classes") is not None:
        plain["known_classes"] = _classes_of(path_or_url(plain["known_classes"]))
    return {name: value for name, value in plain.items() if value is not None and value is not False and value != ()}


def _classes_of(pack: Path) -> tuple[str, ...]:
    schema = manifests.read(pack).schema
    labels = next((schema[name] for name in ("label", "box_labels") if name in schema), None)
    if labels is None or not labels.classes:
        raise InvalidRequest(f"{pack}: the pack has no classes to number others by; give one that has")
    return labels.classes


def check_source(root: Path) -> None:
    """Raise InvalidRequest if `root` does not exist or is an empty folder. `root` may be a file."""
    if not root.is_file():
        check_folder(root)


def check_folder(root: Path) -> None:
    """Raise InvalidRequest if `root` is not a folder or is an empty folder."""
    is_empty = False
    if root.is_dir():
        with suppress(OSError), os.scandir(root) as entries:  # the source reports a folder that cannot be listed
            is_empty = not any(entries)
        if is_empty:
            raise InvalidRequest(f"{root}: the folder is empty; give the folder that contains the images")
        return
    if root.is_file():
        raise InvalidRequest(f"{root}: is a file; give the folder of the data set")
    what = "is not a folder" if root.exists() else "is a broken link" if root.is_symlink() else "does not exist"
    raise InvalidRequest(f"{root}: {what}; give the folder of the data set")


@dataclass(frozen=True)
class SourceSpec:
    """Options that select a source. Texts have the syntax of the command line.

    Attributes:
        kind: the name of the source, "pack" for a pack, or "auto" to detect the source.
        options: arguments of the constructor of the source, as `parameters` returns them.
        sidecars: texts NAME=SUFFIX:KIND.
        splits: texts NAME=FILE, or texts NAME=FRACTION.
        split_seed: the seed for splits by fractions.
        split_by: the name of a field. Samples with an equal value of this field are in the same split.
        mask_colors: texts FILE or NAME=FILE: a table of colors for the masks, or only for the field NAME.
        labels_orientation: whether labels describe the "stored" or the "upright" pixels if EXIF rotates the image.
        unknown_colors: "error" refuses colors that are not in `mask_colors`; "void" stores 255 for these colors.
        checks_folders: True to raise an error if folders seem to contain pairs of images and masks, not classes.
    """

    kind: str = "auto"
    options: Mapping[str, Any] = field(default_factory=dict)
    sidecars: tuple[str, ...] = ()
    splits: tuple[str, ...] = ()
    split_seed: int = 0
    split_by: str | None = None
    mask_colors: tuple[str, ...] = ()
    unknown_colors: str | None = None
    labels_orientation: str | None = None
    checks_folders: bool = True

    @property
    def flags(self) -> list[str]:
        """Command-line names of the options that are set, such as `--from` and `--sidecar`."""
        kind = None if self.kind in ("auto", manifests.PACK_KIND) else self.kind
        colors = {"mask_colors": self.mask_colors, "unknown_colors": self.unknown_colors}
        splits = {"split": self.splits, "split_by": self.split_by}
        orientation = {"labels_orientation": self.labels_orientation}
        given = {"from": kind, **self.options, "sidecar": self.sidecars, **orientation, **colors, **splits}
        return [flag(name) for name, value in given.items() if value not in (None, ())]

    @cached_property
    def _parsed_splits(self) -> "Lists | Shares":
        if not self.splits and self.split_by is None:
            return {}
        from packer.sources._extend.splits import parse_splits  # only a --split needs it

        return parse_splits(self.splits, seed=self.split_seed, by=self.split_by)

    @property
    def are_splits_random(self) -> bool:
        """True if the splits are random fractions of all samples."""
        return bool(self._parsed_splits) and not isinstance(self._parsed_splits, Mapping)

    def open(self, root: Path) -> tuple[Source, str]:
        """Return `(source, note)` for the path or URL `root`. The note is one line on the detected kind.

        An option that does not fit raises InvalidRequest. A damaged file raises BadInput.
        """
        with naming_memory(lambda: root):
            if isinstance(root, URLPath):
                return self._open_url(root)
            check_source(root)
            return self._open(root, root)

    def _open_url(self, root: URLPath) -> tuple[Source, str]:
        if self.kind == manifests.PACK_KIND:
            raise InvalidRequest(f"{root}: {_PACK_AT_URL}")
        tree = open_tree(root)
        if tree.contents is not None and manifests.NAME in tree.contents.names:
            raise InvalidRequest(f"{root}: is a pack; {_PACK_AT_URL}")
        return self._open(root, tree)

    def _open(self, root: Path, listed: Path | FileTree) -> tuple[Source, str]:
        """Return what `open` returns. `listed` is `root`, or the listed files if `root` is a URL."""
        splits, colors = self._parsed_splits, self._parsed_colors
        if self.kind == manifests.PACK_KIND or (self.kind == "auto" and os.path.lexists(root / manifests.NAME)):
            return self.open_pack(FolderRecipe(root))
        place = listed
        if self.kind == "auto" and isinstance(place, Path):  # an archive is listed only once
            place = _recognition.archive_for_sure(root) or root
        if self.kind == "auto":
            kind, found = self._detect(place)
        else:
            kind, found = self.kind, f"read as {self.kind}"
        folders = self.options.get("folders")
        if splits and folders in ("split", "split/class"):
            raise InvalidRequest(
                f"--folders {folders} and --split: the folders are the splits; leave one of the options out"
            )
        sidecars = self._parsed_sidecars
        module = sources.load(kind)
        self._check_records(module.Source, root)
        if module.Source.holds_records and isinstance(listed, FileTree):
            raise InvalidRequest(f"{root}: {found}: files of many records are read from a disk; download them first")
        options = self._options(module.Source, kind)
        if not self.checks_folders and "folders" in module.Source.defaults():
            options.setdefault("folders", UNCHECKED)
        if sidecars and "ignore_suffixes" in module.Source.defaults():
            options["ignore_suffixes"] = tuple(sidecar.suffix for sidecar in sidecars)
        if splits and "own_splits" in module.Source.defaults():
            options["own_splits"] = False
        is_oriented = "labels_orientation" in module.Source.defaults()
        if self.labels_orientation is not None and is_oriented:
            options["labels_orientation"] = self.labels_orientation
        source = self._source(module, place, options)
        if sidecars:
            source = self._with_sidecars(source, sidecars, keeps_missing="missing" in module.Source.defaults())
        if self.labels_orientation is not None and not is_oriented and not source.companions:
            raise InvalidRequest(
                f"{root}: --labels-orientation is for sidecars, masks in records, coco, table, vmrd and voc; omit it"
            )
        if colors:
            source = self._with_mask_colors(source, colors)
        if splits:
            source = self._with_splits(source, splits)
        return source, found

    @property
    def _parsed_sidecars(self) -> "list[Sidecar]":
        if not self.sidecars:
            return []
        from packer.sources._extend.sidecars import Sidecar  # only a --sidecar needs it

        return [Sidecar.parse(text) for text in self.sidecars]

    def _with_sidecars(self, source: Source, sidecars: "list[Sidecar]", *, keeps_missing: bool) -> Source:
        """Return the source with sidecars. `keeps_missing` is true if the source supports `--missing keep`."""
        from packer.sources._extend.sidecars import add_sidecars  # as above

        policy = self.options.get("missing", "error")
        if policy == "keep" and not keeps_missing:
            raise InvalidRequest(
                "--missing keep is for label files; a sample without its sidecar is an error, or skipped"
            )
        decoder = str(self.options.get("decode_with", "none"))
        return add_sidecars(source, sidecars, missing="skip" if policy == "skip" else "error", decode_with=decoder)

    @cached_property
    def _parsed_colors(self) -> "list[MaskColors]":
        if not self.mask_colors:
            if self.unknown_colors is not None:
                raise InvalidRequest("--unknown-colors is for --mask-colors FILE; leave it out")
            return []
        from packer.sources._extend.mask_colors import MaskColors  # only a --mask-colors needs it

        return [MaskColors.parse(text, unknown=self.unknown_colors or "error") for text in self.mask_colors]

    def _with_mask_colors(self, source: Source, colors: "list[MaskColors]") -> Source:
        from packer.sources._extend.mask_colors import add_mask_colors  # as above

        return add_mask_colors(source, colors)

    def _with_splits(self, source: Source, splits: "Lists | Shares") -> Source:
        from packer.sources._extend.splits import Shares, add_shares, add_splits  # as above

        return add_shares(source, splits) if isinstance(splits, Shares) else add_splits(source, splits)

    def _check_records(self, maker: type[Source], root: Path) -> None:
        if maker.holds_records and self.sidecars:
            raise InvalidRequest(f"{root}: --sidecar is for files next to those of each sample; records have none")
        if maker.holds_records and self.mask_colors:
            raise InvalidRequest(f"{root}: --mask-colors is for masks that are files of their own, not for records")

    def preset(self, root: Path) -> "SourceSpec":
        """Return a copy with the source options of a preset. Options that the user set have priority."""
        place: Path | FileTree = open_tree(root) if isinstance(root, URLPath) else root
        if isinstance(place, Path) and (
            not root.exists() or self.kind == manifests.PACK_KIND or os.path.lexists(root / manifests.NAME)
        ):
            return self
        kind = self.kind if self.kind != "auto" else self._detect(place)[0]
        return replace(self, kind=kind, options={**preset_source_options(kind), **self.options})

    def _source(self, module: ModuleType, root: Path | FileTree, options: Mapping[str, Any]) -> Source:
        try:
            made: Source = module.Source(root, **options)
        except (BadInput, InvalidRequest) as error:
            if isinstance(root, Path) and self.kind != "auto" and os.path.lexists(root / manifests.NAME):
                raise InvalidRequest(
                    f"{root}: is a pack, which --from {self.kind} does not read: leave --from out, or give the "
                    "original data"
                ) from error
            if isinstance(error, InvalidRequest):
                raise
            is_lone = isinstance(root, Path) and root.is_file()
            if self.kind != "auto" and not module.Source.holds_records and not is_lone:
                tree = open_tree(root, follow_links=bool(self.options.get("follow_links")))
                if module.Source.recognize(tree, scan(tree).names) is None:
                    raise InvalidRequest(f"{error.message} (--from {self.kind})") from error
            raise
        return made

    def _detect(self, root: Path | FileTree) -> tuple[str, str]:
        return _recognition.detect(
            root,
            follow_links=bool(self.options.get("follow_links")),
            given=self.options.keys() - self._missing_of_sidecars - {"known_classes"},
        )

    @property
    def _missing_of_sidecars(self) -> set[str]:
        """`{"missing"}` with sidecars, which support the option `missing` for every source; otherwise empty."""
        return {"missing"} if self.sidecars else set()

    def open_pack(self, recipe: PackRecipe) -> "tuple[PackSource, str]":
        """Return `(source, note)` for a pack, as `open` does. Options for original data raise InvalidRequest."""
        from packer.conversion.pack_source import PackSource  # slow import that other sources do not need

        source = PackSource(recipe)
        if self.flags:
            raise InvalidRequest(
                f"{source.root}: is a pack; {', '.join(self.flags)}: for the original data; pack that again"
            )
        return source, f"pack of {len(source)} samples, format {source.manifest.format}"

    def _options(self, maker: type[Source], kind: str) -> dict[str, Any]:
        own = set(maker.defaults())
        unfit = sorted(set(self.options) - own - self._missing_of_sidecars)
        if unfit:
            names = ", ".join(flag(name) for name in sorted(own - {*INTERNAL}))
            raise InvalidRequest(
                f"source {kind!r} has no option {flag(unfit[0])}; it has: {names or 'none'}{_of_others(unfit[0])}"
            )
        return {name: value for name, value in self.options.items() if name in own}

    def to_json(self, source: Source) -> dict[str, Any]:
        """Return the options for the manifest. Files of splits and colors are recorded by content, not by path.

        If the source is a pack, return the id and the options of the source pack.
        """
        provenance = source.provenance()
        if provenance is not None:
            return dict(provenance.asked)
        splits = self._parsed_splits
        places = dict(source.places)
        given = {name: value for name, value in self.options.items() if name not in places}
        asked: dict[str, Any] = {
            "kind": source.kind,
            "options": {**source.assumed, **given},
            "sidecars": list(self.sidecars),
            **({"places": places} if places else {}),
        }
        if self.mask_colors:
            asked["mask_colors"] = source.asked()["mask_colors"]
        if not splits:
            return {**asked, "splits": {}}
        from packer.sources._extend.splits import splits_to_json  # only a --split needs it

        return {**asked, "splits": splits_to_json(splits)}


def _of_others(option: str) -> str:
    """Return the end of an error message: the names of the sources that support `option`, or ""."""
    others = sources.having(option)
    return f"; {flag(option)} is of --from {' or '.join(others)}" if 0 < len(others) <= _NAMED else ""
