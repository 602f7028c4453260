"""Sources: original data sets on disk -> samples. One file each; see base.py for the contract.

_parse holds what they read with, _extend what can be added to any of them (sidecar files, splits), _records what those
share whose samples are records in large files, _arrays what those share whose samples are rows of large arrays.

A source module has `class Source(base.Source)`, made by `Source(root, **options)`, and
`recognise(names) -> str | None`: given the relative POSIX paths found under a folder, a line that says what was
recognised, or None; one of record files is asked for the first bytes instead, by its `Source.recognise_content`. Its
int `SPECIFICITY` orders them: `--from auto` asks the most specific first.
"""

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from packer.errors import InvalidRequest
from packer.registry import Registry
from packer.sources._parse.listing import described, scan, shown
from packer.sources._parse.source_file_access import SourceRoot

registry = Registry(__name__, __path__[0], "source")
names = registry.names
load = registry.load


def detect(root: Path, *, follow_links: bool = False) -> tuple[str, str]:
    """The name of the source that reads `root`, and a line that says what was recognised.

    root: a folder, or one file that holds records. follow_links: as of packer.sources._parse.listing.scan. Raises
    InvalidRequest where none reads it, BadInput as that does.
    """
    modules = sorted(((load(name), name) for name in names()), key=lambda pair: (-pair[0].SPECIFICITY, pair[1]))
    if root.is_file():
        return _detect_file(root, modules)
    listing = scan(root, follow_links=follow_links)
    for module, name in modules:
        sentence = module.recognise(listing.names)
        if sentence is None and module.Source.holds_records:
            sentence = module.Source.recognise_content(SourceRoot(root, follow_links), listing.names)
        if sentence is not None:
            return name, sentence
    if not listing.names:
        raise InvalidRequest(f"{shown(str(root))}: there is no file in it; give the folder that holds the images")
    from packer.sources._parse import unread_formats  # NumPy, which `packer --help` does without

    unread = unread_formats.unread_pictures(SourceRoot(root, follow_links), listing.names)
    if unread:
        raise InvalidRequest(f"{shown(str(root))}: no images: {unread_formats.described(unread)}")
    other = _other_records(SourceRoot(root, follow_links), listing.names)
    if other is not None:
        raise InvalidRequest(f"{shown(str(root))}: {other}")
    raise InvalidRequest(
        f"{shown(str(root))}: no known data set: found {described(listing.names)}, "
        f"expected one of {', '.join(names())}; give the folder that holds the images, or say which with --from"
    )


def _detect_file(root: Path, modules: list[tuple[ModuleType, str]]) -> tuple[str, str]:
    found = recognise_records(root)
    if found is not None:
        return found
    place = root.resolve()
    other = _other_records(SourceRoot(place.parent), [place.name])
    if other is not None:
        raise InvalidRequest(f"{shown(str(root))}: {other}")
    holders = ", ".join(name for module, name in modules if module.Source.holds_records)
    raise InvalidRequest(
        f"{shown(str(root))}: is a file; give the folder of the data set, or a file that {holders} reads"
    )


def _other_records(folder: SourceRoot, names: Sequence[str]) -> str | None:
    """What an LMDB is that no source reads; None where there is none."""
    from packer.sources._records import lmdb_layout  # only an error needs it

    return lmdb_layout.other_layout(folder, names)


def recognise_records(root: Path) -> tuple[str, str] | None:
    """As `detect`, for another tool's file or a folder with some directly in it; None for anything else."""
    if root.is_file():
        place = root.resolve()
        folder, found = SourceRoot(place.parent), [place.name]
    elif root.is_dir():
        folder, found = SourceRoot(root), sorted(entry.name for entry in root.iterdir() if entry.is_file())
    else:
        return None
    for name in names():
        maker = load(name).Source
        if maker.holds_records and (sentence := maker.recognise_content(folder, found)) is not None:
            return name, sentence
    return None
