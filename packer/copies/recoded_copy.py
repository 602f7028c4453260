"""Recoded copy: a staged pack whose images have another codec, so that they are decoded once and not in each epoch.

An image in the codec ycc420 takes half the bytes of raw pixels and is read without a decoder. The copy is a pack of its
own, made by a conversion. Every image has the new codec. All other values are copied bit for bit, and the order of the
samples stays.

The pixels of a recoded copy may differ from those of the pack. So an incomplete copy is never read, and a dataset reads
a complete copy only if the user names its codec.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from packer import codecs, formats
from packer.conversion.convert import convert_source
from packer.conversion.options import MOST_EXTRAS_BYTES, ConversionOptions
from packer.conversion.pack_build import Estimate, estimate
from packer.conversion.pack_source import PackSource
from packer.conversion.plan import Plan, make_plan
from packer.conversion.publication import read_plan
from packer.conversion.work_folder_layout import NAMES
from packer.copies import capacity
from packer.copies.capacity import SpaceNeeded
from packer.copies.leased_folder import OwnedFolder
from packer.copies.staged_copies import StagedCopy, check_codec
from packer.copies.stager import Hooks, Staged, StageOptions, remove_replaced
from packer.errors import CorruptPack, InvalidRequest, PackerError, StorageError
from packer.files.work_folder import work_folder
from packer.pack import manifest as manifests
from packer.pack.derived_pack import FolderRecipe
from packer.pack.reader import Pack
from packer.schema import Schema
from packer.stores.url import URLPath

_PROBES = 256  # samples whose size is measured to estimate the size of the copy
_REFUSED = "nothing was written; keep less, or stage the pack as it is, without --as"
_CHECKS = 64  # checks for room, while the copy is made


def stage_recoded(pack: Path, codec: str, options: StageOptions, hooks: Hooks) -> Staged:
    """Make a copy of a pack with its images in `codec`, unless the copy exists. Return the result.

    The call continues an unfinished copy, which a killed process left.

    Raises:
        InvalidRequest: If the pack is remote, no image needs the new codec, or the format cannot store the codec.
        StorageError: If the copy does not fit. The unfinished copy is removed.
        BadInputs: If a value is damaged. The unfinished copy is removed.
        UnsafePath: If the folder of the copies belongs to another user.
    """
    check_codec(codec)
    if isinstance(pack, URLPath):
        raise InvalidRequest(
            f"{pack}: --as is for a pack in a folder: copy it here first, with --to DIR and without --as"
        )
    manifest = manifests.read_pack(pack)
    names = _recoded(pack, manifest.schema, codec)
    place = OwnedFolder.of(options.to, options.machine)
    copy = StagedCopy.of(place, manifest, codec)
    if place.exists() and (parts := _parts(copy)) is not None and not copy.partial.exists():
        place.sweep()
        return Staged(copy.folder, "there", parts)
    with place.locked(hooks.waiting):
        notes = remove_replaced(copy, pack.resolve())
        parts = _parts(copy)
        if parts is None:
            if os.path.lexists(copy.folder):  # damaged
                copy.remove()
            size = _Making(pack, copy, names, options).make(hooks.progress)
            done = Staged(copy.folder, "recoded", _parts(copy) or 0, copied_bytes=size)
        else:
            copy.remove_partial()  # left by a process that was killed between its last two steps
            done = Staged(copy.folder, "there", parts)
    return replace(done, notes=tuple(notes))


def _recoded(pack: Path, schema: Schema, codec: str) -> list[str]:
    """Return the names of the image fields whose codec changes. Raises InvalidRequest if there are none."""
    images = [field for field in schema if field.kind == "image"]
    for field in images:
        if codecs.codec_class(replace(field, codec=codec)).keeps_files:
            raise InvalidRequest(f"{pack}: --as {codec}: keeps the bytes of files, and a pack is not made of files")
    names = [field.name for field in images if field.codec != codec]
    if not names:
        reason = f"every image is {codec} already" if images else "no field is an image"
        raise InvalidRequest(f"{pack}: --as {codec}: {reason}; stage it as it is, without --as")
    return names


def _parts(copy: StagedCopy) -> int | None:
    """Return the number of parts of a complete copy, or None if the copy does not exist, is unfinished or damaged."""
    try:
        pack = Pack(copy.folder, verify="never")
    except (InvalidRequest, CorruptPack):
        return None
    pack.close()
    return len(pack.manifest.parts)


class _Making:
    def __init__(self, pack: Path, copy: StagedCopy, names: list[str], options: StageOptions) -> None:
        self._pack = pack
        self._copy = copy
        self._options = options
        self._source = PackSource(FolderRecipe(pack))
        found = self._source.manifest
        extras_bytes = sum(self._source.folder.state(name).size_bytes for name in self._source.extras)
        if StagedCopy.of(copy.place, found, copy.codec).folder != copy.folder:
            raise CorruptPack(f"{pack}: replaced by another pack while it was opened; stage it again")
        self._request = ConversionOptions(
            to=found.format,
            codecs=tuple((name, copy.codec or "") for name in names),
            order="stored",  # a sample keeps its number
            part_bytes=max((part.bytes for part in found.parts), default=0),
            extras_bytes=max(MOST_EXTRAS_BYTES, extras_bytes),
            source=self._source.provenance().asked,
        )
        self._plan: Plan = make_plan(self._source, self._request)
        count = len(self._source)
        probes = sorted({number * count // _PROBES for number in range(_PROBES)})
        self._size: Estimate = estimate(self._plan, probes=probes)

    def _check(self, done: float, advice: str) -> None:
        """Raise StorageError with `advice` if the rest does not fit. `done` is the share that is finished, 0 to 1."""
        size, plan, left = self._size, self._plan, 1 - done
        files = formats.load(plan.options.to).Writer.files(plan.schema) * size.samples
        need = SpaceNeeded(
            int((size.pack_bytes + size.scratch_bytes) * left), int((files + 3 * len(plan.parts)) * left) + 8
        )
        capacity.check(self._copy.place.base, need, self._options.keep, self._options.machine, advice=advice)

    def make(self, progress: Callable[[int, int], None]) -> int:
        """Make the copy and return its size in bytes. If the process is killed, the unfinished copy remains."""
        copy, total = self._copy, max(1, self._plan.source_bytes)
        done = checked = 0

        def add(samples: int, size: int) -> None:
            nonlocal done, checked
            done += size
            progress(samples, size)
            if (done - checked) * _CHECKS >= total:
                checked = done
                self._check(min(1.0, done / total), "there is less than before: the unfinished copy was removed")

        try:
            self._check_unfinished()
            copy.note_origin(self._pack.resolve())
            made = convert_source(self._source, copy.folder, self._request, progress=add)
        except StorageError as error:
            copy.remove_partial()
            cause = error.__cause__ if isinstance(error.__cause__, StorageError) else error
            raise StorageError(
                f"{self._pack}: not staged as {copy.codec}, and nothing of it is left there: {cause}"
            ) from error
        except PackerError:
            copy.remove_partial()
            raise
        return made.bytes_out

    def _check_unfinished(self) -> None:
        """Remove the parts of an unfinished copy of another plan. Without an unfinished copy, check the space."""
        copy = self._copy
        if not copy.partial.exists():
            self._check(0.0, _REFUSED)
            return
        with work_folder(copy.partial, NAMES) as work:
            earlier = read_plan(work)
            if earlier is not None and earlier.get("fingerprint") != self._plan.fingerprint:
                work.clear()
