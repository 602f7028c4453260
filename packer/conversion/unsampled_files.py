"""Unsampled files: files of the source that belong to no sample, packed too, so that extract restores the whole tree.

They go along all or not at all: when they exceed what --extras allows, none does, and the notes and the manifest's
`source` say how many stayed behind.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from packer.errors import BadInput, InvalidRequest
from packer.files.safe_paths import components
from packer.schema import Buffer
from packer.sources._parse.listing import counted, listed
from packer.sources._parse.source_root import HOW_TO_FOLLOW, LinkLeadsOut
from packer.sources.base import Source


@dataclass(frozen=True)
class UnsampledFiles:
    """sizes: relative path -> bytes of each file that goes along, in the source's order.

    left: how many files stay behind, and their bytes. notes: one line for the user about each kind of these.
    identity: what of a file's state is no content, to tell a changed source by.
    """

    sizes: Mapping[str, int] = field(default_factory=dict)
    left: tuple[int, int] = (0, 0)
    notes: tuple[str, ...] = ()
    identity: tuple[int, ...] = ()

    def contents(self, source: Source) -> Iterator[Buffer]:
        """The files' bytes, in order; raises BadInput for one that changed or cannot be read."""
        for (path, size_bytes), data in zip(self.sizes.items(), source.read_extras(list(self.sizes)), strict=True):
            if len(data) != size_bytes:
                raise BadInput(
                    f"{source.root / path}: changed while it was packed: expected {size_bytes} bytes, "
                    f"found {len(data)}; run again"
                )
            yield data


def choose(source: Source, *, most_bytes: int) -> UnsampledFiles:
    """What of the source's extras goes along; most_bytes: of all of them together, 0 for none.

    What is no regular file, cannot be read or has a name that extract would refuse is left behind and noted.
    """
    if not most_bytes:
        return _limited(UnsampledFiles(), most_bytes)
    known = source.extra_sizes()
    if known is not None:
        return _limited(UnsampledFiles(known), most_bytes)
    sizes, odd, outside, times = {}, [], [], []
    for path in source.extras():
        try:
            found = _state(source, path)
        except LinkLeadsOut:
            outside.append(path)
            continue
        if found is None:
            odd.append(path)
        else:
            sizes[path] = found.st_size
            times.append(found.st_mtime_ns)
    notes = [f"{counted(len(odd), 'other file')} left behind, not to be read: {listed(odd)}"] if odd else []
    if outside:
        files = counted(len(outside), "other file")
        notes.append(f"{files} left behind, reached by a link out of the folder: {listed(outside)}; {HOW_TO_FOLLOW}")
    return _limited(UnsampledFiles(sizes, (len(odd) + len(outside), 0), tuple(notes), tuple(times)), most_bytes)


def _state(source: Source, path: str) -> os.stat_result | None:
    """What the system says of a file, None for one that cannot go along; raises LeadsOut."""
    try:
        components(path)
        status = source.folder.status(path)
    except LinkLeadsOut:
        raise
    except (BadInput, InvalidRequest):
        return None
    return status if stat.S_ISREG(status.st_mode) and os.access(source.root / path, os.R_OK) else None


def _limited(found: UnsampledFiles, most_bytes: int) -> UnsampledFiles:
    total = sum(found.sizes.values())
    files = counted(len(found.sizes), "other file")
    if total > most_bytes:
        note = f"{files} left behind: {total:,} bytes, more than --extras allows ({most_bytes:,})"
        return UnsampledFiles({}, (len(found.sizes) + found.left[0], total), (*found.notes, note))
    note = f"{files} of no sample carried along: {total:,} bytes; --extras 0 leaves them behind"
    return UnsampledFiles(found.sizes, found.left, (*found.notes, *([note] if found.sizes else [])), found.identity)
