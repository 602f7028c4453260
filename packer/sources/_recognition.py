"""Recognition: finds the source that reads a folder, an archive or a file, for `--from auto`.

Sources are tried in the order of their rank, `SPECIFICITY` of the source module, highest first. If two sources of equal
rank recognize the files, InvalidRequest is raised. Ranks from 1 to 99 are layouts of images with annotations. A source
with a rank from 1 to 99 is tried only if the source has all options that the user set.
"""

import sys
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from types import ModuleType

from packer.errors import BadInput, InvalidRequest
from packer.sources import load, names
from packer.sources._file_pattern import is_image
from packer.sources._message_texts import described, shown
from packer.sources._trees.file_tree import FileTree
from packer.sources._trees.folder_scan import scan
from packer.sources._trees.folder_tree import EMPTY, SourceRoot
from packer.sources._trees.open_tree import open_archive, open_tree

_LOOKED_AT = 1000  # number of files of a tar that are inspected
_LAYOUTS = range(1, 100)
_LAYOUTS_AND_SETS = range(1, sys.maxsize)  # from rank 100 on: published data sets
_TAR_SOURCE = "webdataset"
# Options that imply a source.
_DECIDING_OPTIONS = {
    "annotations": "coco",
    "key_column": "table",
    "group_by": "table",
    "roles": "pairs",
    "layout": "pairs",
}


# Sources that need not be imported (1 to 7 ms each) to recognize a folder of images. A source in neither set is always
# tried.
_BEHIND_IMAGES = frozenset(  # ranked below the source `folder`, which reads any folder with an image
    ("basicsr-lmdb", "caffe-lmdb", "efficient-lmdb", "hdf5", "image2lmdb", "n5", "npy", "npz", "recordio")
    + ("tensorpack-lmdb", "tfrecord", "webdataset")
)
_OF_LABEL_FILES = frozenset(  # sources that do not recognize a data set of images alone
    ("coco", "cornell", "grasp-anything", "graspnet-rect", "ivalab", "ocid-grasp", "table", "vmrd", "voc", "yolo")
)


def detect(root: Path | FileTree, *, follow_links: bool = False, given: Collection[str] = ()) -> tuple[str, str]:
    """Return `(name, line)`: the name of the source that reads `root`, and a line for the user on the data set.

    Args:
        root: Path of a folder, an archive or a file, or a tree.
        follow_links: True follows symbolic links that lead out of the folder.
        given: Names of the options that the user set, without options that all sources have (sidecars, splits).

    Raises:
        InvalidRequest: No source recognizes the files, or several sources of equal rank do.
        BadInput: The folder cannot be listed, or an archive is damaged.
    """
    for option, name in _DECIDING_OPTIONS.items():
        if option in given:
            return name, f"read as {name}, whose option is given"
    if not isinstance(root, FileTree) and root.is_file():
        return _detect_file(root, given=given)
    return _detect_tree(open_tree(root, follow_links=follow_links), given=given)


def recognize_records(root: Path) -> tuple[str, str] | None:
    """Return `(name of the source, line for the user)` for a file of records or a folder of such files, else None."""
    if root.is_file():
        place = root.resolve()
        folder, found = SourceRoot(place.parent), [place.name]
    elif root.is_dir():
        folder, found = SourceRoot(root), sorted(entry.name for entry in root.iterdir() if entry.is_file())
    else:
        return None
    makers = ((load(name), name) for name in names())
    return next(_recognized(folder, found, (pair for pair in makers if pair[0].Source.holds_records)), None)


def archive_for_sure(root: Path) -> FileTree | None:
    """Return the tree of an archive, or None if the file is not an archive or a source of records reads it."""
    return open_archive(root) if root.is_file() and recognize_records(root) is None else None


def _detect_tree(tree: FileTree, *, given: Collection[str]) -> tuple[str, str]:
    listing = scan(tree)
    found = _by_rank(tree, listing.names, given=given)
    if found is not None:
        return found
    where = shown(str(tree.root))
    if not listing.names:
        raise InvalidRequest(f"{where}: found no file; give the folder that contains the images")
    from packer.sources import _unread_images  # imported late: `packer --help` does not need NumPy

    unread = _unread_images.unread_images(listing.names)
    if unread:
        raise InvalidRequest(f"{where}: no images: {_unread_images.described(unread, has_decoder=True)}")
    raise InvalidRequest(
        f"{where}: no known data set: found {described(listing.names)}, expected one of {', '.join(names())}; "
        "give the folder that contains the images, or name the source with --from"
    )


def _detect_file(root: Path, *, given: Collection[str]) -> tuple[str, str]:
    found = recognize_records(root)
    if found is not None:
        return _detect_tar(root, found[1], given=given) if found[0] == _TAR_SOURCE else found
    tree = open_archive(root)
    if tree is not None:
        return _detect_tree(tree, given=given)
    found = _by_rank(SourceRoot(root.parent), [root.name], given=given, ranks=_LAYOUTS_AND_SETS)
    if found is not None:
        return found
    where = shown(str(root))
    if not root.stat().st_size:
        raise InvalidRequest(f"{where}: {EMPTY}")
    holders = ", ".join(name for module, name in _modules() if module.Source.holds_records)
    raise InvalidRequest(
        f"{where}: is a file; give the folder of the data set, a tar or zip file that contains it, a table, or a file "
        f"that {holders} reads"
    )


def _detect_tar(root: Path, sentence: str, *, given: Collection[str]) -> tuple[str, str]:
    """Return `(name, line)` of the source of a tar: a source of folders, or WebDataset with the line `sentence`.

    Consecutive members that differ only in suffix are a WebDataset sample. A source that recognizes the layout of the
    files is preferred. If all samples also have equal suffixes, both sources fit, and InvalidRequest is raised.
    """
    from packer.sources._trees import tar_tree  # imported late: only a tar needs it
    from packer.sources.records.webdataset import suffixes_of_samples

    first = tar_tree.first_names(root, _LOOKED_AT)
    suffixes = suffixes_of_samples(first)
    has_samples = any(len(each) > 1 for each in suffixes)
    try:
        tree = tar_tree.tar_tree(root)
    except BadInput:
        if not has_samples:
            raise
        return _TAR_SOURCE, sentence
    files = scan(tree).names
    layout = _by_rank(tree, files, given=given, ranks=_LAYOUTS_AND_SETS)
    if layout is not None:
        last = suffixes.pop() if len(first) == _LOOKED_AT else suffixes[0]  # the last sample may be incomplete
        if has_samples and last <= suffixes[0] and all(each == suffixes[0] for each in suffixes):
            raise InvalidRequest(_undecided(tree.root, [layout, (_TAR_SOURCE, sentence)]))
        return layout
    if has_samples:
        return _TAR_SOURCE, sentence
    in_folders = [name for name in first if "/" in name.removeprefix("./")]
    has_images = load("folder").Source.recognize(tree, in_folders) is not None
    if has_images and all(len(each) == 1 for each in suffixes_of_samples(files)):
        return _detect_tree(tree, given=given)
    is_nested = tar_tree.holds_tars(first)
    if is_nested or has_images:
        what = "contains tars" if is_nested else f"contains images in folders, such as {shown(in_folders[0])}"
        raise InvalidRequest(
            f"{shown(str(root))}: a tar that {what}: several sources fit; use --from folder (the folders are "
            f"classes, as if it were unpacked{': a folder per tar' if is_nested else ''}) or --from {_TAR_SOURCE} "
            "(members of one name are a sample, without labels)"
        )
    return _TAR_SOURCE, sentence


def _by_rank(
    tree: FileTree,
    files: Sequence[str],
    *,
    given: Collection[str],
    ranks: Container[int] | None = None,
) -> tuple[str, str] | None:
    """Return `(name, line)` of the source of the highest rank that recognizes the files, or None if no source does.

    Only sources with `ranks` are tried (None: all), and layouts only if they have the options `given`. Raises
    InvalidRequest for two sources of equal rank.
    """
    for rank, modules in groupby(_modules(_that_may_recognize(files)), key=lambda pair: int(pair[0].SPECIFICITY)):
        tried = list(modules)
        if rank in _LAYOUTS:
            tried = [(module, name) for module, name in tried if set(given) <= set(module.Source.defaults().keys())]
        found = list(_recognized(tree, files, tried)) if ranks is None or rank in ranks else []
        if len(found) > 1:
            raise InvalidRequest(_undecided(tree.root, found))
        if found:
            return found[0]
    return None


def _recognized(
    tree: FileTree, files: Sequence[str], modules: Iterable[tuple[ModuleType, str]]
) -> Iterator[tuple[str, str]]:
    for module, name in modules:
        sentence = module.Source.recognize(tree, files)
        if sentence is not None:
            yield name, sentence


def _undecided(root: Path, found: Sequence[tuple[str, str]]) -> str:
    options = "; ".join(f"--from {name} ({sentence})" for name, sentence in found)
    return f"{shown(str(root))}: several sources fit; use one of these: {options}"


def _that_may_recognize(files: Sequence[str]) -> set[str]:
    images = sum(map(is_image, files))
    tried = set(names())
    if images:
        tried -= _BEHIND_IMAGES
    if images == len(files):
        tried -= _OF_LABEL_FILES
    return tried


def _modules(chosen: Iterable[str] | None = None) -> list[tuple[ModuleType, str]]:
    """Return `(module, name)` of the `chosen` sources (None: all), highest rank first."""
    pairs = ((load(name), name) for name in (names() if chosen is None else chosen))
    return sorted(pairs, key=lambda pair: (-pair[0].SPECIFICITY, pair[1]))
