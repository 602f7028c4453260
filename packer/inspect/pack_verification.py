"""Verification: a pack in a folder or behind a URL against its manifest, and against the data that it was made from."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from os import PathLike
from typing import TYPE_CHECKING

from packer.conversion.source_comparison import Comparison, Worst
from packer.errors import CorruptPack, InvalidRequest, NoObject, ObjectChanged
from packer.pack import manifest as manifests
from packer.pack.manifest import EXTRAS, INDEX, Manifest
from packer.pack.verification import EVERYTHING, Depth, Subset, parse_digest, problems
from packer.stores.url import StoreURL, URLPath, path_or_url

if TYPE_CHECKING:
    from packer.stores.store import Store, StoredObject

_PARTIAL = ".partial/"  # left by a conversion that was killed; the next conversion to the URL removes it


@dataclass(frozen=True)
class Verification:
    """The result of a verification.

    problems: one line each, none for a sound pack. worst: for each lossy field that was compared with the original
    data, the value that is least like its original. not_compared: for each field without a compared value, the reason.
    """

    problems: Sequence[str]
    worst: Mapping[str, Worst]
    not_compared: Mapping[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """True if there is no problem."""
        return not self.problems


def verify(
    pack: str | PathLike[str],
    *,
    depth: Depth = "default",
    subset: str | None = None,
    expect: str | None = None,
    source: str | PathLike[str] | None = None,
    on_problem: Callable[[str], object] | None = None,
) -> Verification:
    """Check a pack without changing it, and list every problem.

    Args:
        pack: a folder, or a URL whose files are all fetched and compared with the manifest.
        depth: "quick" checks the manifest, names, sizes and the index; "default" also the sha256 of every part; "data"
            also compares and decodes every value of every sample.
        subset: "N/M" for every M-th part and sample, starting at the N-th.
        expect: "sha256:HEX", the digest that packer.json must have.
        source: the original data, to compare with.
        on_problem: is called with each problem as soon as it is found.

    Raises:
        InvalidRequest: there is no pack, or it has a newer version or an unknown format.
    """
    folder = path_or_url(pack)
    chosen = Subset.parse(subset) if subset else EVERYTHING
    comparison: Comparison | None = None
    found: list[str] = []

    def note(problem: str) -> None:
        found.append(problem)
        if on_problem is not None:
            on_problem(problem)

    if isinstance(folder, URLPath):
        if subset is not None or source is not None:
            raise InvalidRequest(
                f"{folder}: a subset, and the source, are looked at on a disk: download the pack first"
            )
        searched = _problems_at_url(folder.url, depth, expect)
    else:
        searched = problems(folder, depth=depth, subset=chosen, expect=expect)
    for problem in searched:
        note(problem)
    if source is not None:
        try:
            comparison = Comparison(folder, path_or_url(source), subset=chosen)
        except CorruptPack as error:
            note(str(error))
    if comparison is None:
        return Verification(tuple(found), {})
    for problem in comparison.problems():
        note(problem)
    return Verification(tuple(found), comparison.worst, comparison.not_compared)


# ---- a pack behind a URL


def _problems_at_url(url: StoreURL, depth: Depth, expect: str | None) -> Iterator[str]:
    """Check a pack behind a URL, as `problems` does; raises InvalidRequest, StoreError.

    Each file is fetched into a file without a name, and hashed on the way. Values are not checked one by one: the
    sha256 of a part covers them.
    """
    from packer.pack.stored_head import read_manifest  # the client of the stores, which folders do without
    from packer.stores.store import Store

    if depth == "data":
        raise InvalidRequest(f"{url}: --data reads every value, which is done on a disk: download the pack first")
    digest = None if expect is None else parse_digest(expect, manifests.NAME)
    store, reads_parts = Store(url), depth != "quick"
    try:
        pack, manifest = read_manifest(store)
    except CorruptPack as error:
        yield str(error)
        return
    if digest not in (None, pack.digest):
        yield (
            f"{store.url / manifests.NAME}: another pack than expected: its sha256 is {pack.digest}, expected "
            f"{digest}; get the pack again"
        )
    files = dict(_listed_files(manifest))
    there = _listing(store, files)
    for name in sorted(there.keys() - files.keys() - {manifests.NAME}):
        if not name.startswith(_PARTIAL):
            yield f"{store.url / name}: unknown object: the manifest does not list it; remove it"
    for name, (size, sha256) in files.items():
        found = there.get(name)
        if found is None:
            yield f"{store.url / name}: missing; put the pack there again"
        elif found.bytes != size:
            yield f"{store.url / name}: cut or changed: {found.bytes} bytes, expected {size}; put the pack there again"
        elif reads_parts or not name.startswith("part-"):
            yield from _damage(store, name, found, sha256)


def _listed_files(manifest: Manifest) -> Iterator[tuple[str, tuple[int, str]]]:
    """Yield name, size and sha256 of all files but the manifest."""
    for file in manifest.index:
        yield f"{INDEX}/{file.name}", (file.bytes, file.sha256)
    for file in manifest.extras:
        yield f"{EXTRAS}/{file.name}", (file.bytes, file.sha256)
    for part in manifest.parts:
        yield part.name, (part.bytes, part.sha256)


def _listing(store: "Store", files: Mapping[str, object]) -> "dict[str, StoredObject]":
    """Return the objects by name; of a web server, which has no listing, those of the given files that exist."""
    if not store.url.is_web:
        return {found.name: found for found in store.objects()}
    states = {name: store.state(name) for name in files}
    return {name: state for name, state in states.items() if state is not None}


def _damage(store: "Store", name: str, found: "StoredObject", sha256: str) -> Iterator[str]:
    """Yield a problem if the bytes of a file are not those of the manifest."""
    where = store.url / name
    with tempfile.TemporaryFile() as file:
        fetched = None
        with suppress(NoObject, ObjectChanged):
            fetched = store.fetch(name, file.fileno(), bytes=found.bytes, etag=found.etag)
    if fetched is None:
        yield f"{where}: changed while it was looked at; run again"
    elif fetched.sha256 != sha256:
        yield (
            f"{where}: damaged: sha256 {fetched.sha256[:16]}..., the manifest says {sha256[:16]}...; put the pack "
            "there again"
        )
