"""Verification: compares a pack with its manifest and, on request, with the original data."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike

from packer.conversion.source_verification import Comparison, Worst
from packer.errors import CorruptPack, InvalidRequest
from packer.pack.verification import EVERYTHING, Level, Subset, problems
from packer.stores.url import URLPath, path_or_url


@dataclass(frozen=True)
class Verification:
    """The result of a verification.

    Attributes:
        problems: One line per problem. Empty for a pack without problems.
        worst: Lossy field -> description of the value that differs most from the original data.
        not_compared: Field whose values were not compared with the original data -> the reason.
    """

    problems: Sequence[str]
    worst: Mapping[str, Worst]
    not_compared: Mapping[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """True for a pack without problems."""
        return not self.problems


def verify(
    pack: str | PathLike[str],
    *,
    level: Level = "default",
    subset: str | None = None,
    expect: str | None = None,
    source: str | PathLike[str] | None = None,
    on_problem: Callable[[str], object] | None = None,
) -> Verification:
    """Check a pack without changing it. Return its problems, and the comparison with the original data.

    Args:
        pack: A folder, or a URL. This function downloads all files at a URL.
        level: "quick" checks the manifest, names, sizes and the index. "default" also checks the sha256 of every part.
            "full" also compares and decodes every value.
        subset: "N/M" for every M-th part and sample, starting at the N-th. None for all. Not for "quick".
        expect: "sha256:HEX", the digest of packer.json. Another digest is a problem. None for no check.
        source: The original data to compare a pack in a folder with. None for no comparison.
        on_problem: Called with each problem as soon as it is found.

    Raises:
        InvalidRequest: `pack` is not a pack, or has a newer version or an unknown format. Level "full", `subset` and
            `source` also raise InvalidRequest for a URL.
    """
    folder = path_or_url(pack)
    chosen = Subset.parse(subset) if subset else EVERYTHING
    comparison: Comparison | None = None
    found: list[str] = []

    def note(problem: str) -> None:
        found.append(problem)
        if on_problem is not None:
            on_problem(problem)

    if isinstance(folder, URLPath) and source is not None:
        raise InvalidRequest(f"{folder}: --source needs a pack on a disk; download the pack first")
    for problem in problems(folder, level=level, subset=chosen, expect=expect):
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
