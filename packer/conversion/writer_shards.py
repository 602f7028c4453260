"""Writer shards: joins the shards of a pack, which several processes wrote with `packer.Writer` next to the pack."""

import hashlib
import os
import re
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from os import PathLike
from pathlib import Path

from packer.conversion.convert import ConversionSummary, run_conversion, summary_of
from packer.conversion.joined_publication import JoinedPublication
from packer.conversion.options import ConversionOptions
from packer.conversion.plan import Plan
from packer.conversion.publication import check_target
from packer.conversion.work_folder_layout import NAMES, PACK
from packer.conversion.writer import pack_folder, shard_path
from packer.errors import BadInput, InvalidRequest, PackerError
from packer.files.work_folder import beside, work_folder
from packer.pack import manifest as manifests
from packer.pack.manifest import Manifest
from packer.pack.unlisted_files import check_replaceable
from packer.sources.objects._written_samples import WrittenSamples
from packer.system.argument_types import check_arguments

_SHARD = re.compile(r"(.*)\.shard-([0-9]{5})-of-([0-9]{5})", re.DOTALL)
_REPLACED = f"{PACK}.old"


def finish(pack: str | PathLike[str], *, overwrite: bool = False) -> ConversionSummary:
    """Join the shards that several processes wrote with `packer.Writer` to one pack, and remove the shards.

    The samples are in the order of the shards, then in the order of `write`. Parts are linked, not copied, where the
    file system supports hard links. If the call is interrupted, the same call continues.

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
        found = {shard: manifests.read(shard) for shard in shards}
        first = found[shards[0]]
        content = " ".join([target.name, *(manifest.pack_id for manifest in found.values())])
        plan = Plan(
            WrittenSamples(first.schema, "auto"),
            ConversionOptions(to=first.format),
            first.schema,
            fingerprint=hashlib.sha256(content.encode()).hexdigest(),
        )
        publication = JoinedPublication(plan, target, work, found, overwrite=overwrite)
        manifest = _joined_before(target, found)
        if manifest is None:
            check_target(None, target, overwrite=overwrite)
            _check_shards(target, found)
            try:
                run_conversion(publication)
            except BadInput:
                publication.remove()
                raise
            manifest = publication.published
        else:
            publication.remove()
        for shard in shards:  # moved first, so that a shard is never visible in parts
            work.remove(_REPLACED)
            work.above.replace(shard.name, work, _REPLACED)
            work.remove(_REPLACED)
        for other in others:
            other.clear()
    summary = summary_of(manifest, plan, resumed=0, notes=())
    return replace(summary, bytes_in=int(manifest.source.get("bytes", 0)), seconds=time.monotonic() - started)


def _shards(target: Path) -> list[Path]:
    """Return the existing shards of a pack, in order. None, or shards of different counts, raise InvalidRequest."""
    matches = [(path, _SHARD.fullmatch(path.name)) for path in sorted(target.parent.glob("*.shard-*-of-*"))]
    found = [path for path, match in matches if match is not None and match[1] == target.name]
    counts = {path.name[-5:] for path in found}
    if len(counts) != 1:
        what = f"shards of {' and of '.join(sorted(counts))}; remove those of an older run" if counts else "no shards"
        raise InvalidRequest(f"{target}: {what}; packer.Writer(pack, shard=0, shards=8) writes one")
    return found


def _check_shards(target: Path, found: Mapping[Path, Manifest]) -> None:
    first, *_ = found
    count = int(first.name[-5:])
    for number in range(count):
        expected = shard_path(target, number, count)
        if expected not in found:
            raise InvalidRequest(f"{expected}: missing; run the Writer of shard {number} to its end")
    for shard, manifest in found.items():
        for name in ("schema", "options"):
            if getattr(manifest, name) != getattr(found[first], name):
                raise InvalidRequest(f"{shard}: other arguments ({name}) than in {first.name}; write it again")


def _joined_before(target: Path, found: Mapping[Path, Manifest]) -> Manifest | None:
    """Return the manifest of the target if an earlier run joined all shards, and was killed before it removed them."""
    try:
        manifest = manifests.read(target)
    except PackerError:
        return None
    digests = {part.sha256 for part in manifest.parts}
    return manifest if all(part.sha256 in digests for each in found.values() for part in each.parts) else None
