"""Verification: a pack in a folder or behind a URL against its manifest, and against the data that it was made from."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike

from packer.conversion.source_comparison import Comparison, Worst
from packer.errors import CorruptPack, InvalidRequest
from packer.pack import manifest as manifests
from packer.pack.verification import EVERYTHING, Depth, Subset, parse_digest, problems
from packer.stores.url import StoreURL, URLPath, path_or_url


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
        searched = _stored_problems(folder.url, depth, expect)
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


def _stored_problems(url: StoreURL, depth: Depth, expect: str | None) -> Iterator[str]:
    """Check a pack behind a URL, as `problems` does."""
    from packer.pack.stored_verification import stored_problems  # the client of the stores, which folders do without
    from packer.stores.store import Store

    if depth == "data":
        raise InvalidRequest(f"{url}: --data reads every value, which is done on a disk: download the pack first")
    digest = None if expect is None else parse_digest(expect, manifests.NAME)
    return stored_problems(Store(url), reads_parts=depth != "quick", digest=digest)
