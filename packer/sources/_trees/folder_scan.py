"""Folder scan: the paths of all files under a folder. Listing opens no file.

Each folder is listed once, under its own path if possible: two links in each of N folders would otherwise result in 2^N
paths. A link to a folder outside the root is an error without `follow_links`. If several links lead to a folder, the
paths of the links decide which link is followed, not the order of the file system. Links that are not behind another
link come first, then links are sorted by name.

Files of desktops, editors and version control are not part of a data set. Listing skips folders whose name begins with
a dot, `__MACOSX`, `._*`, `.DS_Store`, `Thumbs.db` and `desktop.ini`. Notes contain the counts of skipped files.
"""

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from packer.errors import BadInput, InvalidRequest
from packer.sources._message_texts import linked, listed, shown
from packer.sources._trees.file_tree import Contents, FileTree
from packer.sources._trees.folder_tree import HOW_TO_FOLLOW, SourceRoot

_CLUTTER_FILES = (".ds_store", "thumbs.db", "desktop.ini")  # in lower case
_CLUTTER_FOLDERS = ("__macosx",)


@dataclass(frozen=True)
class Listing:
    """Relative POSIX paths under `root`, sorted by code point. Bytes that are not UTF-8 are surrogates (PEP 383).

    Attributes:
        root: Path of the folder or archive.
        names: Paths of all files, including other entries that are not folders, such as devices.
        folders: Paths of all listed folders below the root.
        loops: Links that were not followed because they lead to a folder that contains the link.
        repeats: Pairs (link, folder): links that were not followed because `folder`, the target, is already listed.
        clutter: Name of a kind of skipped file or folder -> count.
    """

    root: Path
    names: list[str]
    folders: list[str]
    loops: list[str]
    repeats: list[tuple[str, str]]
    clutter: Mapping[str, int] = field(default_factory=dict)

    def notes(self) -> list[str]:
        """Return a line for the user on each kind of skipped link, folder or file."""
        notes = []
        if self.loops:
            notes.append(f"folders not entered, because they lead back to a folder above: {listed(self.loops)}")
        if self.repeats:
            pairs = listed(f"{name} ({first})" for name, first in self.repeats)
            notes.append(f"links not entered, because their folder is listed already: {pairs}")
        if self.clutter:
            kinds = ", ".join(f"{shown(name)} {count}" for name, count in sorted(self.clutter.items()))
            notes.append(f"ignored, hidden or written by desktops and editors: {kinds}")
        return notes


def scan(root: Path | FileTree, *, follow_links: bool = False) -> Listing:
    """List all files of a folder or of a tree.

    Args:
        root: Path of a folder, which may be a link, or a tree.
        follow_links: True follows links to folders outside `root`. If `root` is a tree, its `follow_links` counts.

    Raises:
        InvalidRequest: `root` is not a folder.
        BadInput: Folders cannot be listed, or are links out of the root. The message contains the paths.
    """
    tree = root if isinstance(root, FileTree) else SourceRoot(root, follow_links)
    if tree.contents is not None:
        return _listed_contents(tree.root, tree.contents)
    if not tree.root.is_dir():
        raise InvalidRequest(f"{shown(str(tree.root))}: no such folder; give the folder that contains the data set")
    walk = _Walk(SourceRoot(tree.root, tree.follow_links))
    walk.enter("", frozenset())
    while walk.links:
        links, walk.links = sorted(walk.links), []
        for name, above in links:
            walk.follow(name, above)
    if walk.failures:
        raise BadInput(
            f"{shown(str(tree.root))}: cannot list folders: {listed(walk.failures)}; make them readable or move them"
        )
    if walk.elsewhere:
        raise BadInput(
            f"{shown(str(tree.root))}: {linked(len(walk.elsewhere), 'folder')} out of it: {listed(walk.elsewhere)}; "
            f"{HOW_TO_FOLLOW} includes the files there, or move the links away"
        )
    loops, repeats = sorted(walk.loops), sorted(walk.repeats)
    return Listing(tree.root, sorted(walk.names), sorted(walk.folders), loops, repeats, walk.found.counts)


def clutter_kind(name: str, *, is_folder: bool) -> str | None:
    """Return the kind of a file or folder of desktops or editors, such as `._*`. None for an entry of the data set."""
    if is_folder:
        return f"{name}/" if name.startswith(".") or name.lower() in _CLUTTER_FOLDERS else None
    if name.startswith("._"):
        return "._*"
    return name if name.lower() in _CLUTTER_FILES else None


class _Clutter:
    """A filter that skips the files and folders of desktops and editors, and counts them."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def passes(self, name: str, *, is_folder: bool) -> bool:
        """Return True for an entry of the data set. Count files of the desktop and the like, and return False."""
        kind = clutter_kind(name, is_folder=is_folder)
        if kind is not None:
            self.counts[kind] += 1
        return kind is None


def _listed_contents(root: Path, contents: Contents) -> Listing:
    """List the contents of an archive as `scan` lists a folder."""
    found = _Clutter()
    entered = {""}
    for name in contents.folders:  # sorted: a folder comes before its subfolders
        folder, last = _split(name)
        if folder.rstrip("/") in entered and found.passes(last, is_folder=True):
            entered.add(name)
    names = [
        name
        for name, (folder, last) in zip(contents.names, map(_split, contents.names), strict=True)
        if folder.rstrip("/") in entered and found.passes(last, is_folder=False)
    ]
    folders = [name for name in contents.folders if name in entered]
    return Listing(root, names, folders, [], [], found.counts)


def _split(name: str) -> tuple[str, str]:
    at = name.rfind("/") + 1
    return name[:at], name[at:]


_Identity = tuple[int, int]


@dataclass
class _Walk:
    """The state of a listing.

    `links` are links to folders that will be followed, each with the identities of the folders that contain it. `seen`
    is identity (device, inode) of a listed folder -> path. `elsewhere` are refused links out of the root.
    """

    folder: SourceRoot
    names: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    loops: list[str] = field(default_factory=list)
    repeats: list[tuple[str, str]] = field(default_factory=list)
    links: list[tuple[str, frozenset[_Identity]]] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    seen: dict[_Identity, str] = field(default_factory=dict)
    found: _Clutter = field(default_factory=_Clutter)

    def follow(self, name: str, above: frozenset[_Identity]) -> None:
        """List the folder behind a link inside the folders `above`, unless it is already listed or outside the root."""
        try:
            status = os.stat(os.path.join(self.folder.root, name))
        except OSError as error:
            self.failures.append(f"{shown(name)} ({error.strerror})")
            return
        if self._is_entered(name, (status.st_dev, status.st_ino), above, is_followed=True):
            return
        if not self.folder.follow_links and self.folder.leads_out(name):
            self.elsewhere.append(name)
        else:
            self.folders.append(name)
            self.enter(f"{name}/", above, is_followed=True)

    def enter(self, prefix: str, above: frozenset[_Identity], *, is_followed: bool = False) -> None:
        """List the folder `prefix`, inside the folders `above`, and all its subfolders that are not links.

        If `is_followed` is true, folders that are already listed are skipped. Otherwise no folder can come twice, and
        folders with equal identities, which some file systems return, are all listed.
        """
        pending = [(prefix, above)]
        while pending:
            prefix, above = pending.pop()
            path = os.path.join(self.folder.root, prefix)
            try:
                status = os.stat(path)
                identity = (status.st_dev, status.st_ino)
                if self._is_entered(prefix[:-1], identity, above, is_followed=is_followed):
                    self.folders.remove(prefix[:-1])
                    continue
                files, folders, links = _entries(path)
            except OSError as error:
                self.failures.append(f"{shown(path)} ({error.strerror})")
                continue
            self.seen.setdefault(identity, prefix[:-1])
            self.names += [prefix + name for name in files if self.found.passes(name, is_folder=False)]
            inner = [prefix + name for name in folders if self.found.passes(name, is_folder=True)]
            inside = above | {identity}
            self.folders += inner
            self.links += [(prefix + name, inside) for name in links if self.found.passes(name, is_folder=True)]
            pending += [(f"{name}/", inside) for name in inner]

    def _is_entered(self, name: str, identity: _Identity, above: frozenset[_Identity], *, is_followed: bool) -> bool:
        """Return True for a folder to skip: it is in `above`, or is listed already and behind a link."""
        if identity in above:
            self.loops.append(name)
        elif is_followed and identity in self.seen:
            self.repeats.append((name, self.seen[identity]))
        else:
            return False
        return True


def _entries(path: str) -> tuple[list[str], list[str], list[str]]:
    """Return the names of `(files, folders, links to folders)`. A broken link counts as a file."""
    files: list[str] = []
    folders: list[str] = []
    links: list[str] = []
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_symlink():
                (links if os.path.isdir(entry.path) else files).append(entry.name)
            else:
                (folders if entry.is_dir() else files).append(entry.name)
    return files, folders, links
