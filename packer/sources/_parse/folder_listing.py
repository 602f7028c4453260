"""Folder listing: every file name under a folder, in one walk that opens no file and enters each folder once.

A folder is entered by its own path first. A link to a folder that is entered anyway is not: otherwise two links in each
of N folders would make 2^N. A link to a folder elsewhere is an error that says how to have it followed; followed, it is
entered like the others, once. Which of several links to one folder counts depends on their paths alone (those that lie
in the folder itself before those behind other links, then by name), never on the order of a listing.

What desktops, editors and version control leave behind is no part of a data set: folders whose name begins with a dot,
`__MACOSX`, `._*`, `.DS_Store`, `Thumbs.db` and `desktop.ini` are neither entered nor listed, but counted. Where no tool
is known to make a folder with a dot, the pictures in it are counted.
"""

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packer.errors import BadInput, InvalidRequest, PackerError, printable
from packer.sources._parse.source_file_access import HOW_TO_FOLLOW, SourceRoot
from packer.sources._trees.file_tree import Contents, FileTree

_SHOWN = 20  # names in one message
_KINDS = 10  # suffixes in one message
_CLUTTER_FILES = (".ds_store", "thumbs.db", "desktop.ini")  # in lower case
_CLUTTER_FOLDERS = ("__macosx",)
_TOOLS_FOLDERS = (
    ".git",
    ".svn",
    ".hg",
    ".ipynb_checkpoints",
    ".idea",
    ".vscode",
    ".cache",
    ".dvc",
    ".venv",
    ".trash",
    ".snapshot",
    ".zfs",
)
_PICTURES = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm")  # counted in hidden folders


@dataclass(frozen=True)
class Listing:
    """What lies under `root`, as relative POSIX paths; bytes that are not UTF-8 are surrogates (PEP 383).

    names: every file and whatever else is no folder, sorted by code point, about 120 bytes each in memory.
    folders: every folder below the root that was entered, the empty ones too, sorted.
    loops: links that were not entered, because they lead to a folder that they lie in, sorted.
    repeats: links that were not entered, because they lead to another folder that was, and which that is, sorted.
    clutter: what desktops and editors left behind -> how many of it were passed over. hidden: paths of other folders
    whose name begins with a dot, which are passed over too -> pictures in them.
    """

    root: Path
    names: list[str]
    folders: list[str]
    loops: list[str]
    repeats: list[tuple[str, str]]
    clutter: Mapping[str, int] = field(default_factory=dict)
    hidden: Mapping[str, int] = field(default_factory=dict)

    def notes(self) -> list[str]:
        """What the walk left out, one line each."""
        notes = []
        if self.loops:
            notes.append(f"folders not entered, since they lead back to one above: {listed(self.loops)}")
        if self.repeats:
            twice = listed(f"{name} ({first})" for name, first in self.repeats)
            notes.append(f"links not entered, since the folder that they lead to is taken once already: {twice}")
        if self.clutter:
            kinds = ", ".join(f"{shown(name)} {count}" for name, count in sorted(self.clutter.items()))
            notes.append(f"ignored, since desktops and editors make them: {kinds}")
        if self.hidden:
            found = listed(f"{name}/ ({counted(count, 'picture')})" for name, count in sorted(self.hidden.items()))
            notes.append(
                f"hidden folders, not entered since their names begin with a dot: {found}; rename what belongs here"
            )
        return notes


def scan(root: Path | FileTree, *, follow_links: bool = False) -> Listing:
    """List everything under `root`, which may be a link itself, or in a tree; of an archive what it is known to hold.

    follow_links: of a path, as a tree has it: enter links to folders elsewhere. Raises InvalidRequest where root is no
    folder, BadInput naming all folders that cannot be listed, or all links to folders elsewhere that are not followed.
    """
    tree = root if isinstance(root, FileTree) else SourceRoot(root, follow_links)
    if tree.contents is not None:
        return _listed_contents(tree.root, tree.contents)
    root = tree.root
    if not root.is_dir():
        raise InvalidRequest(f"{shown(str(root))}: no such folder; give the folder that holds the data set")
    walk = _Walk(SourceRoot(root, tree.follow_links))
    walk.enter("", frozenset())
    while walk.links:
        links, walk.links = sorted(walk.links), []
        for name, above in links:
            walk.follow(name, above)
    if walk.failures:
        raise BadInput(
            f"{shown(str(root))}: cannot list folders: {listed(walk.failures)}; make them readable or move them"
        )
    if walk.elsewhere:
        raise BadInput(
            f"{shown(str(root))}: {linked(len(walk.elsewhere), 'folder')} out of it: {listed(walk.elsewhere)}; "
            f"{HOW_TO_FOLLOW} takes what is there, or move the links away"
        )
    return Listing(
        root,
        sorted(walk.names),
        sorted(walk.folders),
        sorted(walk.loops),
        sorted(walk.repeats),
        dict(walk.clutter),
        dict(walk.hidden),
    )


def _listed_contents(root: Path, contents: Contents) -> Listing:
    """An archive as the folder that it unpacks to, without what desktops leave behind."""
    clutter: Counter[str] = Counter()
    hidden: dict[str, int] = {}
    passed: set[str] = set()  # folders, and those in them
    folders = []
    for name in contents.folders:  # sorted, so that one above comes first
        above, _, last = name.rpartition("/")
        if above in passed:
            passed.add(name)
        elif kind := clutter_kind(last, is_folder=True):
            passed.add(name)
            if last.startswith(".") and last.lower() not in _TOOLS_FOLDERS:
                hidden[name] = 0
            else:
                clutter[kind] += 1
        else:
            folders.append(name)
    names = []
    for name in contents.names:
        above, _, last = name.rpartition("/")
        if above in passed:
            top = next((folder for folder in hidden if name.startswith(f"{folder}/")), None)
            if top is not None:
                hidden[top] += name.lower().endswith(_PICTURES)
        elif kind := clutter_kind(last, is_folder=False):
            clutter[kind] += 1
        else:
            names.append(name)
    return Listing(root, names, folders, [], [], dict(clutter), hidden)


_Identity = tuple[int, int]


@dataclass
class _Walk:
    """links: folders that are links, with the identities of those that they lie in, to be followed.

    seen: identity of each folder that was entered -> its path. elsewhere: links that were not followed.
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
    clutter: Counter[str] = field(default_factory=Counter)
    hidden: dict[str, int] = field(default_factory=dict)

    def follow(self, name: str, above: frozenset[_Identity]) -> None:
        """Enter a link to a folder, if it is to be entered."""
        try:
            status = os.stat(os.path.join(self.folder.root, name))
        except OSError as error:
            self.failures.append(f"{shown(name)} ({error.strerror})")
            return
        identity = status.st_dev, status.st_ino
        if identity in above:
            self.loops.append(name)
        elif identity in self.seen:
            self.repeats.append((name, self.seen[identity]))
        elif not self.folder.follow_links and self.folder.leads_out(name):
            self.elsewhere.append(name)
        else:
            self.folders.append(name)
            self.enter(f"{name}/", above, is_followed=True)

    def enter(self, prefix: str, above: frozenset[_Identity], *, is_followed: bool = False) -> None:
        """List a folder and all folders in it that are no links.

        Behind a link one that was entered already is passed over. In front of any link it cannot be there twice, and
        two with one identity, which some file systems give, are two.
        """
        pending = [(prefix, above)]
        while pending:
            prefix, above = pending.pop()
            path = os.path.join(self.folder.root, prefix)
            try:
                status = os.stat(path)
                identity = (status.st_dev, status.st_ino)
                first = self.seen.get(identity) if is_followed else None
                files, inner, links = _entries(path) if first is None and identity not in above else ([], [], [])
            except OSError as error:
                self.failures.append(f"{shown(path)} ({error.strerror})")
                continue
            if identity in above or first is not None:
                self._pass_over(prefix[:-1], first if identity not in above else None)
                continue
            self.seen.setdefault(identity, prefix[:-1])
            files, inner, links = self._without_clutter(prefix, files, inner, links)
            self.names.extend(prefix + name for name in files)
            self.folders.extend(prefix + name for name in inner)
            inside = above | {identity}
            self.links.extend((prefix + name, inside) for name in links)
            pending.extend((f"{prefix}{name}/", inside) for name in inner)

    def _without_clutter(
        self, prefix: str, files: list[str], folders: list[str], links: list[str]
    ) -> tuple[list[str], list[str], list[str]]:
        """The entries of a folder that belong to a data set; counts the others."""

        def kept(names: list[str], *, is_folder: bool) -> list[str]:
            kinds = [clutter_kind(name, is_folder=is_folder) for name in names]
            for name, kind in zip(names, kinds, strict=True):
                if is_folder and name.startswith(".") and name.lower() not in _TOOLS_FOLDERS:
                    self.hidden[prefix + name] = _pictures_in(os.path.join(self.folder.root, prefix, name))
                elif kind is not None:
                    self.clutter[kind] += 1
            return [name for name, kind in zip(names, kinds, strict=True) if kind is None]

        return kept(files, is_folder=False), kept(folders, is_folder=True), kept(links, is_folder=True)

    def _pass_over(self, name: str, first: str | None) -> None:
        self.folders.remove(name)
        if first is None:
            self.loops.append(name)
        else:
            self.repeats.append((name, first))


def _entries(path: str) -> tuple[list[str], list[str], list[str]]:
    """Names of files, of folders, and of links to folders; a link that leads nowhere is a file: reading it says so."""
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


def _pictures_in(path: str) -> int:
    """Pictures by their names below a folder; no link is followed, and what cannot be listed has none."""
    return sum(name.lower().endswith(_PICTURES) for _, _, files in os.walk(path) for name in files)


def clutter_kind(name: str, *, is_folder: bool) -> str | None:
    """What kind of leftover an entry is, None for one that may belong to a data set."""
    if is_folder:
        return f"{name}/" if name.startswith(".") or name.lower() in _CLUTTER_FOLDERS else None
    if name.startswith("._"):
        return "._*"
    return name if name.lower() in _CLUTTER_FILES else None


def suffix_of(name: str) -> str:
    """The suffix of a relative path in small letters, as pathlib has it, which would take ten times as long."""
    file = name[name.rfind("/") + 1 :]
    dot = file.rfind(".")
    return file[dot:].lower() if 0 < dot < len(file) - 1 else ""


def shown(name: str) -> str:
    """A name as one printable line, for messages and for reasons that a pack keeps."""
    return printable(name)


def listed(names: Iterable[str]) -> str:
    """The first 20 of some names for a message, and how many more there are."""
    found = list(names)
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return ", ".join(shown(name) for name in found[:_SHOWN]) + more


def counted(count: int, noun: str) -> str:
    """`1 view`, `2 views`, `3 classes`."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun}{'es' if noun.endswith('s') else 's'}"


def linked(count: int, noun: str) -> str:
    """`1 folder that is a link`, `2 folders that are links`."""
    return f"{counted(count, noun)} that {'is a link' if count == 1 else 'are links'}"


def described(names: Iterable[str], noun: str = "file") -> str:
    """What kinds of file there are: `12 files (.txt 10, .pdf 2)`; those in order of the counts, then of the names."""
    suffixes = Counter(suffix_of(name) or "no suffix" for name in names)
    ordered = sorted(suffixes.items(), key=lambda pair: (-pair[1], pair[0]))
    kinds = ", ".join(f"{shown(suffix)} {count}" for suffix, count in ordered[:_KINDS])
    rest = sum(count for _, count in ordered[_KINDS:])
    kinds += f", others {rest}" if rest else ""
    return counted(suffixes.total(), noun) + (f" ({kinds})" if kinds else "")


def are_empty(tree: FileTree, names: Sequence[str]) -> bool:
    """Whether there are files, and none of them has a byte; one that cannot be read is not empty."""
    try:
        return bool(names) and not any(tree.start(name, 1) for name in names)
    except PackerError:
        return False
