"""Convert: check the target, build every part of a plan, then publish the pack with one rename."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from packer import formats
from packer.conversion.journal import NAMES
from packer.conversion.options import ConversionOptions
from packer.conversion.pack_builder import PackBuilder, Progress
from packer.conversion.plan import ORIENTATION, Plan, make_plan
from packer.errors import InvalidRequest, PackerError, PackExists
from packer.files.file_io import failing
from packer.files.npy_arrays import map_file
from packer.files.terminal_output import shell_word
from packer.files.work_folder import work_folder
from packer.pack import manifest as manifests
from packer.pack.index import FOLDER as INDEX
from packer.pack.manifest import Manifest
from packer.pack.unlisted_files import check_whole
from packer.sources._parse.listing import counted
from packer.sources.base import Source
from packer.system.parallel import usable_cores

_FILES = (".zip", ".tar", ".tgz", ".gz", ".7z", ".npz", ".npy", ".pkl", ".tfrecord", ".db")  # of one file each
_FURTHER = {"h5": "hdf5", "pt": "pth"}  # suffixes that are not a format's name


def named_format(target: Path) -> str | None:
    """The format that the target's suffix says; None where it says none."""
    suffix = target.suffix.lower().removeprefix(".")
    said = _FURTHER.get(suffix, suffix)
    return said if said in formats.registry.names() else None


def format_of(target: Path, asked: str | None) -> str:
    """The format of a pack: as asked, else as the target's suffix says (out.h5, out.pth), else lmdb.

    Raises InvalidRequest where the two contradict each other, and for the suffix of a file of another kind without
    --to.
    """
    said = named_format(target)
    if said is None:
        if asked is None and target.suffix.lower() in _FILES:
            raise InvalidRequest(
                f"{target}: a pack is a folder, not a {target.suffix} file; give another name, such as "
                f"{target.stem}.pack, or say --to"
            )
        return asked or "lmdb"
    if asked is not None and asked != said:
        raise InvalidRequest(
            f"{target}: its name says {said}, --to says {asked}; leave --to out, or give another name, such as "
            f"{target.stem}.pack"
        )
    return said


def check_target(root: Path, target: Path, *, overwrite: bool) -> None:
    """Raise InvalidRequest where the pack cannot be put there, PackExists where something is there already.

    root: the folder of the source.
    """
    with failing(target, "ask for the folder"):  # links that change while they are followed
        source, place = root.resolve(), target.resolve()
    if place == source or source in place.parents:
        raise InvalidRequest(f"{target}: lies inside the source {root}; choose a folder beside it")
    if not os.path.lexists(target):
        if not target.parent.is_dir():
            raise InvalidRequest(f"{target}: its parent folder does not exist; make it first")
        return
    if target.is_symlink():
        raise InvalidRequest(f"{target}: is a link; give the folder itself, or another name")
    with failing(target, "list the folder"):
        is_empty = target.is_dir() and not any(target.iterdir())
    if is_empty and not overwrite:
        raise PackExists(f"{target}: an empty folder is there; remove it: rmdir {shell_word(str(target))}")
    if not overwrite:
        hint = "--overwrite replaces it, or" if _is_pack(target) else "it is no pack, so it is never replaced;"
        raise PackExists(f"{target}: already there; {hint} choose another name")
    if not os.path.lexists(target / manifests.NAME):
        raise InvalidRequest(f"{target}: not a pack, and --overwrite replaces packs only; choose another name")
    check_whole(target)


def _is_pack(target: Path) -> bool:
    try:
        manifests.read(target)
    except PackerError:
        return os.path.lexists(target / manifests.NAME)  # a damaged one is told by --overwrite
    return True


# ---- the conversion


@dataclass(frozen=True)
class ConversionSummary:
    """What a conversion did. bytes_in were read, bytes_out are on disk.

    skipped: (key, reason) of samples that are not in the pack. incomplete: (key, what is missing) of samples that are.
    notes: what is worth knowing of the source, what became of the files that are of no sample, what may not be
    meant of masks and boxes, and how many pictures are not upright.
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
    options: ConversionOptions,
    *,
    threads: int | None = None,
    existing: str = "refuse",
    progress: Progress | None = None,
    earlier: Progress | None = None,
) -> ConversionSummary:
    """Pack `source` into the new folder `target`.

    threads: None for as many as this process may use, or one where bytes are kept and only headers are looked at: then
    there is too little to do per file for threads to be worth their switching. The pack does not depend on it.
    existing: what to do about a pack or unfinished work that is there: "refuse" (but go on with unfinished work of the
    same plan), "restart" (throw unfinished work away), "overwrite" (replace a pack), "overwrite+restart".
    progress: told of samples and source bytes that are done; earlier: of those that an earlier run did, instead.
    Raises PackExists, InvalidRequest, BadInputs (all bad samples), StorageError, Locked.
    """
    started = time.monotonic()
    overwrite, restart = existing.startswith("overwrite"), existing.endswith("restart")
    check_target(source.root, target, overwrite=overwrite)
    plan = make_plan(source, options)
    with work_folder(target.with_name(f".{target.name}.partial"), NAMES) as work:
        check_target(source.root, target, overwrite=overwrite)
        wanted = threads or (1 if plan.only_copies else usable_cores())
        job = PackBuilder(
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
            found = job.findings()
            orientations = _about_orientations(job.journal.pack / INDEX, manifest, plan)
            check_target(source.root, target, overwrite=overwrite)  # once more: a conversion takes hours
            job.publish(manifest, overwrite=overwrite)
    return ConversionSummary(
        samples=manifest.samples,
        parts=len(manifest.parts),
        bytes_in=plan.source_bytes,
        bytes_out=_pack_bytes(manifest),
        seconds=time.monotonic() - started,
        pack_id=manifest.pack_id,
        resumed_samples=resumed,
        skipped=manifest.skipped,
        incomplete=manifest.incomplete,
        notes=(*plan.carried.notes, *found, *orientations),
    )


def _about_orientations(index: Path, manifest: Manifest, plan: Plan) -> list[str]:
    """How many pictures lie otherwise than their EXIF orientation says; from the index, which has it of each."""
    name = f"number-{ORIENTATION.name}.npy"
    files = [file for file in manifest.index if file.name == name]
    if not files or plan.source.is_encoded:
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
