"""Detection: which source reads a folder, an archive or a file, for `--from auto`.

Every source that may know the files is asked, the most specific first (`SPECIFICITY`), and where two of one rank know
them nothing is guessed: the error names both. From 1 to 99 are layouts of images with annotations beside them:
options that such a source does not have rule it out.
"""

import sys
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from types import ModuleType

from packer.errors import BadInput, InvalidRequest
from packer.sources import having, load, names
from packer.sources._message_texts import described, shown
from packer.sources._trees.file_tree import FileTree
from packer.sources._trees.folder_tree import EMPTY, SourceRoot
from packer.sources._trees.listing import are_empty, scan
from packer.sources._trees.open_tree import open_archive, open_tree

_LOOKED_AT = 1000  # first files of a tar, whose names say what it is
_IMAGES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
_LAYOUTS = range(1, 100)  # ranks of sources that options of others rule out
_SETS = range(1, sys.maxsize)  # and of published sets

# What need not be imported, 1 to 7 ms each, to tell what a folder of images is. A source that is in neither is asked
# whatever the files are, so that one may be missing here.
_BEHIND_IMAGES = frozenset(  # ranked below the image folder, which takes any folder with an image
    ("basicsr-lmdb", "caffe-lmdb", "efficient-lmdb", "hdf5", "image2lmdb", "n5", "npy", "npz", "recordio")
    + ("tensorpack-lmdb", "tfrecord", "webdataset")
)
_OF_LABEL_FILES = frozenset(  # never told by files that are all images
    ("coco", "cornell", "grasp-anything", "graspnet-rect", "ivalab", "ocid-grasp", "table", "vmrd", "voc", "yolo")
)


def detect(root: Path | FileTree, *, follow_links: bool = False, given: Collection[str] = ()) -> tuple[str, str]:
    """The name of the source that reads `root`, and a line that says what was recognized.

    root: a folder or an archive, or one file that holds records or names the others. follow_links: as of `scan`.
    given: options of sources that are asked for: layouts of annotations that do not have them are not taken. What can
    be added to any source (sidecars, splits) is none of these: it changes nothing of what the files are.
    Raises InvalidRequest where none reads it, and for what may be either of two things; BadInput as `scan` does.
    """
    for module, name in _modules() if given else ():
        for option in module.Source.telling_options:
            if option in given:
                plain = _plain_set(root, option, follow_links=follow_links)
                return plain or (name, f"read as {name}, whose option is given")
    if not isinstance(root, FileTree) and root.is_file():
        return _detect_file(root, given=given)
    tree = open_tree(root, follow_links=follow_links)
    listing = scan(tree)
    root = tree.root
    found = _by_rank(tree, listing.names, given=given)
    if found is not None:
        return found
    if not listing.names:
        raise InvalidRequest(f"{shown(str(root))}: there is no file in it; give the folder that holds the images")
    from packer.sources import _unread_images  # NumPy, which `packer --help` does without

    unread = _unread_images.unread_images(tree, listing.names)
    if unread:
        raise InvalidRequest(f"{shown(str(root))}: no images: {_unread_images.described(unread)}")
    other = _other_records(tree, listing.names) if isinstance(tree, SourceRoot) else None
    if other is not None:
        raise InvalidRequest(f"{shown(str(root))}: {other}")
    empty = ", all empty" if are_empty(tree, listing.names) else ""
    raise InvalidRequest(
        f"{shown(str(root))}: no known data set: found {described(listing.names)}{empty}, "
        f"expected one of {', '.join(names())}; give the folder that holds the images, or say which with --from"
    )


def _plain_set(root: Path | FileTree, option: str, *, follow_links: bool) -> tuple[str, str] | None:
    """The published set with this option that a folder or an archive plainly holds: it may be of a layout too."""
    makers = [(load(name), name) for name in having(option)]
    sets = [(module, name) for module, name in makers if module.SPECIFICITY not in _LAYOUTS]
    if not sets:
        return None
    if isinstance(root, FileTree) or not root.is_file():
        tree: FileTree | None = open_tree(root, follow_links=follow_links)
    else:
        tree = open_archive(root)
    return None if tree is None else next(_recognized(tree, scan(tree).names, sets), None)


def _by_rank(
    tree: FileTree,
    files: Sequence[str],
    *,
    given: Collection[str],
    ranks: Container[int] | None = None,
) -> tuple[str, str] | None:
    """What the most specific source says that knows these files; None where none does. ranks: None for all.

    Raises InvalidRequest where two of one rank know them.
    """
    for rank, modules in groupby(_modules(_that_may_know(files)), key=lambda pair: int(pair[0].SPECIFICITY)):
        asked = list(modules)
        if rank in _LAYOUTS:
            asked = [(module, name) for module, name in asked if set(given) <= set(module.Source.options())]
        found = list(_recognized(tree, files, asked)) if ranks is None or rank in ranks else []
        if len(found) > 1:
            raise InvalidRequest(_undecided(tree.root, found))
        if found:
            return found[0]
    return None


def _recognized(
    tree: FileTree, files: Sequence[str], modules: Iterable[tuple[ModuleType, str]]
) -> Iterator[tuple[str, str]]:
    """The names of the sources that know these files, each with what it says."""
    for module, name in modules:
        sentence = module.recognize(files)
        if sentence is None:
            sentence = module.Source.recognize_tables(tree, files)
        if sentence is None and module.Source.holds_records and isinstance(tree, SourceRoot):
            sentence = module.Source.recognize_content(tree, files)
        if sentence is not None:
            yield name, sentence


def _undecided(root: Path, found: Sequence[tuple[str, str]]) -> str:
    said = "; ".join(f"--from {name} ({sentence})" for name, sentence in found)
    return f"{shown(str(root))}: cannot decide what it is; say which of these: {said}"


def knows(source: str, tree: FileTree) -> bool:
    """Whether a source recognizes what is in a folder or an archive."""
    module, names = load(source), scan(tree).names
    return module.recognize(names) is not None or module.Source.recognize_tables(tree, names) is not None


def archive_for_sure(root: Path) -> FileTree | None:
    """The files in an archive that holds no records of any source; None for everything else. Raises BadInput."""
    return open_archive(root) if root.is_file() and recognize_records(root) is None else None


def _that_may_know(files: Sequence[str]) -> set[str]:
    """The sources that are to be asked about a folder with these files."""
    images = sum(map(_may_be_image, files))
    asked = set(names())
    if images:
        asked -= _BEHIND_IMAGES
    if images == len(files):
        asked -= _OF_LABEL_FILES
    return asked


def _modules(asked: Iterable[str] | None = None) -> list[tuple[ModuleType, str]]:
    """The most specific source first. asked: names of sources, None for all."""
    chosen = names() if asked is None else asked
    return sorted(((load(name), name) for name in chosen), key=lambda pair: (-pair[0].SPECIFICITY, pair[1]))


def _detect_file(root: Path, *, given: Collection[str]) -> tuple[str, str]:
    found = recognize_records(root)
    if found is not None:
        if not load(found[0]).Source.reads_tars:
            return found
        return _settled_tar(root, *found, given=given)
    tree = open_archive(root)
    if tree is not None:
        return detect(tree, given=given)
    beside = SourceRoot(root.parent)
    takers = [(name, module.Source) for module, name in _modules() if module.Source.takes_files]
    for name, maker in takers:
        sentence = maker.recognize_file(beside, root.name)
        if sentence is not None:
            return name, sentence
    place = root.resolve()
    other = _other_records(SourceRoot(place.parent), [place.name])
    if other is not None:
        raise InvalidRequest(f"{shown(str(root))}: {other}")
    if not root.stat().st_size:
        raise InvalidRequest(f"{shown(str(root))}: {EMPTY}")
    holders = ", ".join(name for module, name in _modules() if module.Source.holds_records or module.Source.takes_files)
    raise InvalidRequest(
        f"{shown(str(root))}: is a file; give the folder of the data set, a tar or zip file that holds it, or a file "
        f"that {holders} reads"
    )


def _settled_tar(root: Path, records: str, sentence: str, *, given: Collection[str]) -> tuple[str, str]:
    """What a tar is whose members may be the records of a source, or the files of a folder.

    A layout that the files in it are of is that, as of the folder, although files of one stem follow each other, as the
    members of a sample do. Where the files' content alone says so, and every file is of a whole sample, it may be both.
    """
    from packer.sources._trees import tar_tree  # only a tar needs it

    maker = load(records).Source
    first = tar_tree.first_names(root, _LOOKED_AT)
    is_surely = maker.is_surely(first)
    try:
        tree: FileTree | None = tar_tree.tar_tree(root)
    except BadInput:
        if not is_surely and not all(map(_may_be_image, first)):
            raise
        tree = None  # no folder can be made of it: records, which are read by another rule
    files = scan(tree).names if tree is not None else ()
    layout = _by_rank(tree, files, given=given, ranks=_SETS) if tree is not None else None
    if tree is not None and layout is not None:
        is_named = load(layout[0]).recognize(files) is not None
        if not is_named and is_surely and maker.are_whole(first, is_cut=len(first) == _LOOKED_AT):
            raise InvalidRequest(_undecided(tree.root, [layout, (records, sentence)]))
        return layout
    if is_surely:
        return records, sentence
    in_folders = [name for name in first if "/" in name.removeprefix("./")]
    is_nested = tar_tree.holds_tars(first)
    image_folder = next((name for module, name in _modules() if module.recognize(in_folders) is not None), None)
    if image_folder is not None and tree is not None and not maker.is_surely(files):
        return detect(tree, given=given)  # no name has a second member: no samples of records
    if is_nested or image_folder is not None:
        what = "holds tars" if is_nested else f"holds images in folders, such as {shown(in_folders[0])}"
        raise InvalidRequest(
            f"{shown(str(root))}: a tar that {what}: cannot decide what it is; say --from {image_folder or 'folder'} "
            f"(the folders are classes, as if it were unpacked{': a folder per tar' if is_nested else ''}) or --from "
            f"{records} (members of one name are a sample, without labels)"
        )
    return records, sentence


def _may_be_image(name: str) -> bool:
    return name.lower().endswith(_IMAGES)


def _other_records(folder: SourceRoot, names: Sequence[str]) -> str | None:
    """What an LMDB is that no source reads; None where there is none."""
    from packer.sources.records import _lmdb_source  # only an error needs it

    return _lmdb_source.other_layout(folder, names)


def recognize_records(root: Path) -> tuple[str, str] | None:
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
        if maker.holds_records and (sentence := maker.recognize_content(folder, found)) is not None:
            return name, sentence
    return None
