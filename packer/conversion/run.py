"""convert: build every part of a plan, then publish the pack with one rename."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from packer.conversion.job import Job, Progress
from packer.conversion.journal import NAMES
from packer.conversion.options import Options
from packer.conversion.plan import ORIENTATION, Plan, make_plan
from packer.conversion.repacking import PackSource
from packer.conversion.target import check_target
from packer.files.work_folder import work_folder
from packer.pack.index import FOLDER as INDEX
from packer.pack.manifest import Manifest
from packer.pack.npy import map_file
from packer.parallel import usable_cores
from packer.sources.base import Source
from packer.sources.parsing.scanning import counted


@dataclass(frozen=True)
class Summary:
    """What a conversion did. bytes_in were read, bytes_out are on disk.

    skipped: (key, reason) of samples that are not in the pack. incomplete: (key, what is missing) of samples that are.
    notes: what became of the files that are of no sample, and how many pictures are not upright.
    """

    samples: int
    parts: int
    bytes_in: int
    bytes_out: int
    seconds: float
    pack_id: str
    resumed_samples: int = 0
    skipped: Sequence[tuple[str, str]] = field(default=())
    incomplete: Sequence[tuple[str, str]] = field(default=())
    notes: Sequence[str] = field(default=())


def convert(
    source: Source,
    target: Path,
    options: Options,
    *,
    threads: int | None = None,
    existing: str = "refuse",
    progress: Progress | None = None,
    earlier: Progress | None = None,
) -> Summary:
    """Pack `source` into the new folder `target`.

    threads: None for as many as this process may use, or one where bytes are kept and only headers are looked at: then
    there is too little to do per file for threads to be worth their switching. The pack does not depend on it.
    existing: what to do about a pack or unfinished work that is there: "refuse" (but go on with unfinished work of the
    same plan), "restart" (throw unfinished work away), "overwrite" (replace a pack), "overwrite+restart".
    progress: told of samples and source bytes that are done; earlier: of those that an earlier run did, instead.
    Raises PackExists, Refused, BadInputs (all bad samples), StorageFailed, Locked.
    """
    started = time.monotonic()
    overwrite, restart = existing.startswith("overwrite"), existing.endswith("restart")
    check_target(source.root, target, overwrite=overwrite)
    plan = make_plan(source, options)
    with work_folder(target.with_name(f".{target.name}.partial"), NAMES) as work:
        check_target(source.root, target, overwrite=overwrite)
        wanted = threads or (1 if plan.only_copies else usable_cores())
        job = Job(
            plan,
            target,
            work,
            threads=wanted,
            progress=progress or (lambda samples, size: None),
            earlier=earlier,
        )
        with job.saying_what_is_needed():
            job.journal.begin(plan.fingerprint, restart=restart, options=options.to_json())
        job.check_manifest()
        job.check_space()
        with job.saying_what_is_needed():
            resumed = sum(done.part.samples for done in job.journal.finished.values())
            manifest = job.build()
            orientations = _about_orientations(job.journal.pack / INDEX, manifest, plan)
            check_target(source.root, target, overwrite=overwrite)  # once more: a conversion takes hours
            job.publish(manifest, overwrite=overwrite)
    return Summary(
        samples=manifest.samples,
        parts=len(manifest.parts),
        bytes_in=plan.source_bytes,
        bytes_out=_pack_bytes(manifest),
        seconds=time.monotonic() - started,
        pack_id=manifest.pack_id,
        resumed_samples=resumed,
        skipped=manifest.skipped,
        incomplete=manifest.incomplete,
        notes=(*plan.carried.notes, *orientations),
    )


def _about_orientations(index: Path, manifest: Manifest, plan: Plan) -> list[str]:
    """How many pictures lie otherwise than their EXIF orientation says; from the index, which has it of each."""
    name = f"number-{ORIENTATION.name}.npy"
    files = [file for file in manifest.index if file.name == name]
    if not files or isinstance(plan.source, PackSource):
        return []
    orientations, _ = map_file(index / name, files[0].bytes)
    turned = int(np.count_nonzero(orientations > 1))
    if not turned:
        return []
    pictures = f"{turned} of {counted(manifest.samples, 'picture')} not upright by EXIF orientation"
    if plan.options.exif == "rotate":
        return [f"{pictures}: turned"]
    return [f"{pictures}: left as they are; --exif rotate turns them"]


def _pack_bytes(manifest: Manifest) -> int:
    parts = sum(part.bytes for part in manifest.parts)
    return parts + sum(file.bytes for file in (*manifest.index, *manifest.extras)) + len(manifest.to_bytes())
