"""Recoded copy: a pack that is staged with its images in another codec, decoded once, on the way into memory.

Memory is where bytes are scarce, and decoding is what costs most: ycc420 is half the bytes of raw pixels, and is read
without a decoder. The copy is a pack of its own, made by a conversion of the pack: every field of kind image is in the
codec, whatever it was in; depth, masks and all other values are copied, bit for bit, and samples have their places.

A recoded copy is whole or not there, since its pixels may differ from those of the pack: read in part, an image would
depend on what was staged. For the same reason nobody gets it who does not name its codec.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from packer import codecs, formats
from packer.conversion.conversion_run import Estimate, estimate
from packer.conversion.convert import convert_source
from packer.conversion.options import MOST_EXTRAS_BYTES, ConversionOptions
from packer.conversion.pack_source import PackSource
from packer.conversion.plan import Plan, make_plan
from packer.conversion.publication import read_plan
from packer.conversion.work_folder_names import NAMES
from packer.errors import CorruptPack, InvalidRequest, PackerError, StorageError
from packer.files.work_folder import work_folder
from packer.pack import manifest as manifests
from packer.pack.reader import Pack
from packer.schema import Schema
from packer.staging import capacity
from packer.staging.capacity import SpaceNeeded
from packer.staging.staged_copies import StagedCopy, check_codec
from packer.staging.stager import Hooks, Staged, StageOptions, remove_replaced, warnings
from packer.staging.user_folder import UserFolder
from packer.stores.url import URLPath

_PROBES = 256  # samples that the size is judged by: bytes a pixel of JPEGs differ by half, so to 3 % or so
_REFUSED = "nothing was written; keep less, or stage the pack as it is, without --as"
_LOOKS = 64  # how often is asked, while it is made, whether the rest still fits


def stage_recoded(pack: Path, codec: str, options: StageOptions, hooks: Hooks) -> Staged:
    """Make the copy of a pack with its images in `codec` where it is not there yet, under the place's lock.

    What a killed stager had finished is taken up, part by part. Raises InvalidRequest where there is nothing to recode
    or the pack's format does not hold the codec, StorageError where it does not fit, BadInputs where a value is
    damaged, UnsafePath as `stage` does; what was made until then is removed again.
    """
    check_codec(codec)
    if isinstance(pack, URLPath):
        raise InvalidRequest(
            f"{pack}: --as is for a pack on a disk of this machine: copy it here first, with --to DIR and without --as"
        )
    manifest = manifests.read(pack)
    names = _recoded(pack, manifest.schema, codec)
    place = UserFolder.of(options.to, options.machine)
    copy = StagedCopy.of(place, manifest, codec)
    if place.is_there() and (parts := _parts(copy)) is not None and not copy.partial.exists():
        place.sweep()
        return Staged(copy.folder, "there", parts, notes=tuple(warnings(place.base, options)))
    making = None
    if not place.is_there():  # so that a refusal does not even make the folder
        making = _Making(pack, copy, names, options)
        making.check(0.0, _REFUSED)
    with place.locked(hooks.waiting):
        notes = remove_replaced(copy, pack.resolve())
        parts = _parts(copy)
        if parts is None:
            if os.path.lexists(copy.folder):  # damaged
                copy.remove()
            size = (making or _Making(pack, copy, names, options)).make(hooks.progress)
            done = Staged(copy.folder, "recoded", _parts(copy) or 0, copied_bytes=size)
        else:
            copy.remove_partial()  # of one that was killed between its last two steps
            done = Staged(copy.folder, "there", parts)
    return replace(done, notes=(*notes, *warnings(place.base, options)))


def _recoded(pack: Path, schema: Schema, codec: str) -> list[str]:
    """The fields whose codec changes; raises InvalidRequest where there are none, or images do not go into it."""
    images = [field for field in schema if field.kind == "image"]
    for field in images:
        if codecs.codec_class(replace(field, codec=codec)).keeps_files:
            raise InvalidRequest(f"{pack}: --as {codec}: keeps the bytes of files, which a pack is not made of")
    names = [field.name for field in images if field.codec != codec]
    if not names:
        reason = f"every image is {codec} already" if images else "no field is an image"
        raise InvalidRequest(f"{pack}: --as {codec}: {reason}; stage it as it is, without --as")
    return names


def _parts(copy: StagedCopy) -> int | None:
    """How many parts a copy has that is whole; None where it is not there, or a file of it is cut or missing."""
    try:
        pack = Pack(copy.folder, verify="never")
    except (InvalidRequest, CorruptPack):
        return None
    pack.close()
    return len(pack.manifest.parts)


class _Making:
    """Making the copy of one pack in another codec."""

    def __init__(self, pack: Path, copy: StagedCopy, names: list[str], options: StageOptions) -> None:
        self._pack = pack
        self._copy = copy
        self._options = options
        self._source = PackSource(pack)
        found = self._source.manifest
        extras_bytes = sum(self._source.folder.state(name).size_bytes for name in self._source.extras)
        if StagedCopy.of(copy.place, found, copy.codec).folder != copy.folder:
            raise CorruptPack(f"{pack}: another pack took its place while it was opened; stage it again")
        self._asked = ConversionOptions(
            to=found.format,
            codecs=tuple((name, copy.codec or "") for name in names),
            order="stored",  # a sample is found by its number
            part_bytes=max((part.bytes for part in found.parts), default=0),
            extras_bytes=max(MOST_EXTRAS_BYTES, extras_bytes),
            source=self._source.provenance().asked,
        )
        self._plan: Plan = make_plan(self._source, self._asked)
        count = len(self._source)
        probes = sorted({number * count // _PROBES for number in range(_PROBES)})
        self._size: Estimate = estimate(self._plan, probes=probes)

    def check(self, done: float, advice: str) -> None:
        """Raise StorageError where what is left of it does not fit. done: the share that is there, 0 to 1."""
        size, plan, left = self._size, self._plan, 1 - done
        files = formats.load(plan.options.to).Writer.files(plan.schema) * size.samples
        need = SpaceNeeded(
            int((size.pack_bytes + size.scratch_bytes) * left), int((files + 3 * len(plan.parts)) * left) + 8
        )
        capacity.check(self._copy.place.base, need, self._options.keep, self._options.machine, advice=advice)

    def make(self, progress: Callable[[int, int], None]) -> int:
        """Make it, and return its bytes; only under the place's lock. Unfinished work goes where this raises.

        A process that is killed or interrupted leaves it, for the next one.
        """
        copy, total = self._copy, max(1, self._plan.source_bytes)
        done = looked = 0

        def add(samples: int, size: int) -> None:
            nonlocal done, looked
            done += size
            progress(samples, size)
            if (done - looked) * _LOOKS >= total:
                looked = done
                self.check(min(1.0, done / total), "less than before: what was made of it was removed again")

        try:
            self._take_up()
            copy.note_origin(self._pack.resolve())
            made = convert_source(self._source, copy.folder, self._asked, progress=add)
        except StorageError as error:
            copy.remove_partial()
            cause = error.__cause__ if isinstance(error.__cause__, StorageError) else error
            raise StorageError(
                f"{self._pack}: not staged as {copy.codec}, nothing of it is left there: {cause}"
            ) from error
        except PackerError:
            copy.remove_partial()
            raise
        return made.bytes_out

    def _take_up(self) -> None:
        """Leave what an earlier run has finished of this very plan, and remove that of another one; see if it fits."""
        copy = self._copy
        if not copy.partial.exists():
            self.check(0.0, _REFUSED)
            return
        with work_folder(copy.partial, NAMES) as work:
            earlier = read_plan(work)
            if earlier is not None and earlier.get("fingerprint") != self._plan.fingerprint:
                work.clear()
