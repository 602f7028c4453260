"""Shards: packs that several processes wrote with `packer.Writer`, next to the target, and that `finish` joins.

The parts of the new pack are hard links to the parts of the shards, in the order of the shards.
"""

import hashlib
import os
import re
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from os import PathLike
from pathlib import Path

import numpy as np

from packer.conversion.conversion_run import naming_free_space
from packer.conversion.convert import ConversionSummary, summary_of
from packer.conversion.options import ConversionOptions
from packer.conversion.plan import Plan
from packer.conversion.publication import FolderPublication, check_target, copy_part
from packer.conversion.work_folder_names import NAMES, PACK
from packer.errors import BadInput, InvalidRequest, PackerError
from packer.files.work_folder import beside, work_folder
from packer.pack import manifest as manifests
from packer.pack.extra_files import ChosenExtras
from packer.pack.manifest import INDEX, Manifest, Part
from packer.pack.sample_index import merge
from packer.pack.unlisted_files import check_replaceable
from packer.sources.objects._written_samples import WrittenSamples
from packer.stores.url import URLPath, path_or_url
from packer.system.argument_checks import check_arguments

_SHARD = re.compile(r"(.*)\.shard-([0-9]{5})-of-([0-9]{5})", re.DOTALL)
_REPLACED = f"{PACK}.old"


def finish(pack: str | PathLike[str], *, overwrite: bool = False) -> ConversionSummary:
    """Join the shards that several processes wrote with `packer.Writer` to one pack, and remove the shards.

    The samples are in the order of the shards, then in the order of `write`. No pixel is copied: the parts get another
    name. If the call is interrupted, the same call continues.

    Args:
        pack: The folder of the pack, as for `Writer`.
        overwrite: True replaces an existing pack.

    Raises:
        InvalidRequest: A shard is missing or incomplete, or shards have different fields or arguments.
        BadInput: Samples of two shards have the same key.
        PackExists: `pack` exists and `overwrite` is false.
        Locked: A Writer still writes a shard.
        StorageError: A disk fails.
    """
    check_arguments({"pack": pack, "overwrite": overwrite}, finish.__annotations__)
    target, started = pack_folder(pack), time.monotonic()
    shards = _shards(target)
    with ExitStack() as stack:
        work = stack.enter_context(work_folder(beside(target), NAMES))
        unfinished = [beside(shard) for shard in shards if os.path.lexists(beside(shard))]
        others = [stack.enter_context(work_folder(path, NAMES)) for path in unfinished]
        for shard in shards:
            check_replaceable(shard)
        found = [manifests.read(shard) for shard in shards]
        plan = _plan_of(target, found)
        manifest = _joined_before(target, found)
        if manifest is None:
            check_target(None, target, overwrite=overwrite)
            _check_shards(target, shards, found)
        publication = FolderPublication(plan, target, work, overwrite=overwrite)
        with naming_free_space(work.path, str):
            publication.begin(restart=False)
            if manifest is None:
                manifest = _joined(publication, shards, found)
                publication.publish(manifest)
            else:
                publication.remove()
        for shard in shards:  # moved first, so that a shard is never visible in parts
            work.remove(_REPLACED)
            work.above.replace(shard.name, work, _REPLACED)
            work.remove(_REPLACED)
        for other in others:
            other.clear()
    summary = summary_of(manifest, plan, resumed=0, notes=())
    return replace(summary, seconds=time.monotonic() - started)


def pack_folder(pack: str | PathLike[str]) -> Path:
    """Return the absolute path of a folder. A URL raises InvalidRequest."""
    target = path_or_url(pack)
    if isinstance(target, URLPath):
        raise InvalidRequest(f"{pack}: a Writer writes to a folder; packer convert copies the pack to a URL")
    return target.absolute()


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def shard_path(target: Path, shard: int | None, shards: int | None) -> Path:
    """Return the path of a shard of the pack `target`. Invalid numbers raise InvalidRequest."""
    if shard is None or shards is None or not 0 <= shard < shards <= 99_999:
        raise InvalidRequest(f"shard={shard}, shards={shards}: expected both, and 0 <= shard < shards <= 99999")
    return target.with_name(f"{target.name}.shard-{shard:05d}-of-{shards:05d}")


def _shards(target: Path) -> list[Path]:
    """Return the paths of the shards of a pack that exist, in order."""
    matches = [(path, _SHARD.fullmatch(path.name)) for path in sorted(target.parent.glob("*.shard-*-of-*"))]
    found = [path for path, match in matches if match is not None and match[1] == target.name]
    counts = {path.name[-5:] for path in found}
    if len(counts) != 1:
        what = f"shards of {' and of '.join(sorted(counts))}; remove those of an older run" if counts else "no shards"
        raise InvalidRequest(f"{target}: {what}; packer.Writer(pack, shard=0, shards=8) writes one")
    return found


def _check_shards(target: Path, shards: Sequence[Path], found: Sequence[Manifest]) -> None:
    """Raise InvalidRequest if a shard is missing or does not fit the first shard."""
    count = int(shards[0].name[-5:])
    for number in range(count):
        expected = shard_path(target, number, count)
        if expected not in shards:
            raise InvalidRequest(f"{expected}: missing; run the Writer of shard {number} to its end")
    for shard, manifest in zip(shards, found, strict=True):
        for ours, theirs, what in (
            (manifest.schema.to_json(), found[0].schema.to_json(), "fields"),
            (manifest.options, found[0].options, "arguments"),
        ):
            if ours != theirs:
                raise InvalidRequest(f"{shard}: other {what} than in {shards[0].name}; write it again")


def _joined_before(target: Path, found: Sequence[Manifest]) -> Manifest | None:
    """Return the manifest of the target if it contains all parts of the shards: a run was killed while it cleared."""
    try:
        manifest = manifests.read(target)
    except PackerError:
        return None
    digests = {part.sha256 for part in manifest.parts}
    return manifest if all(part.sha256 in digests for each in found for part in each.parts) else None


def _plan_of(target: Path, found: Sequence[Manifest]) -> Plan:
    first, ids = found[0], [manifest.pack_id for manifest in found]
    size = sum(int(manifest.source.get("bytes", 0)) for manifest in found)
    return Plan(
        source=WrittenSamples(first.schema, "auto"),
        options=ConversionOptions(to=first.format),
        schema=first.schema,
        parts=(),
        sizes=np.asarray([size]),
        file_count=0,
        digest=_sha256(" ".join(ids)),
        fingerprint=_sha256(f"{target.name} {' '.join(ids)}"),
        defaulted=frozenset(),
        extras=ChosenExtras(),
    )


def _joined(publication: FolderPublication, shards: Sequence[Path], found: Sequence[Manifest]) -> Manifest:
    """Link the parts of the shards, and write the index."""
    plan = publication.plan
    parts: list[Part] = []
    for shard, manifest in zip(shards, found, strict=True):
        for part in manifest.parts:
            name = plan.part_name(len(parts))
            copy_part(shard / part.name, publication.pack / name, links=True)
            parts.append(replace(part, name=name))
    try:
        index = merge([shard / INDEX for shard in shards], publication.pack, plan.schema)
    except BadInput:
        publication.remove()
        raise
    if any(manifests.read(shard) != manifest for shard, manifest in zip(shards, found, strict=True)):
        raise InvalidRequest(f"{publication.target}: a shard was replaced while it was joined; run again")
    with publication.work.folder(PACK) as folder:
        folder.sync()
    samples = sum(part.samples for part in parts)
    source = {**found[0].source, "samples": samples, "bytes": plan.source_bytes, "digest": plan.digest}
    incomplete = tuple(item for manifest in found for item in manifest.incomplete)
    joined = replace(
        found[0], samples=samples, parts=tuple(parts), index=index, source=source, incomplete=incomplete
    ).sealed()
    joined.check()
    return joined
