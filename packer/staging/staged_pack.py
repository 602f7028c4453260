"""Staged pack: staged parts are read from the copy, the others from where the pack is."""

import os
import warnings
from functools import partial
from pathlib import Path

from packer.errors import CorruptPack, UnsafePath, printable
from packer.pack import manifest as manifests
from packer.pack.reader import Pack
from packer.staging import staged_copies
from packer.staging.staged_copies import StagedCopy
from packer.staging.user_folder import UserFolder
from packer.system.machine_limits import Machine


def open_staged(folder: Path, *, stage: str | None, verify: str = "first") -> Pack:
    """An open pack. stage: "auto" or a folder that was given to `packer stage --to`; None for no copy.

    The copy is that of this very pack: it is found by the sha256 of packer.json, in a folder that only this user can
    write to. As long as the pack is open it holds a lease on the copy. Where that folder is not this user's own, as
    when another one made it, "auto" warns and reads the pack itself; else UnsafePath is raised. Raises as Pack does.
    """
    if stage is None or (stage == "auto" and not Machine().shared_memory.is_dir()):
        return Pack(folder, verify=verify)
    manifest = manifests.read(folder)
    try:
        place = UserFolder.of(stage, Machine())
        copy = StagedCopy.of(place, manifest)
        descriptor = staged_copies.take(copy.folder) if place.is_there() else None
    except UnsafePath as error:
        if stage != "auto":
            raise
        warnings.warn(printable(f"{folder}: read where it is, not from memory: {error}"), RuntimeWarning, stacklevel=2)
        descriptor = None
    if descriptor is None:
        return Pack(folder, verify=verify)
    try:
        pack = Pack(folder, verify=verify, copies=copy.found(manifest), on_close=partial(os.close, descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    if pack.manifest != manifest:
        pack.close()
        raise CorruptPack(f"{folder}: another pack took its place while it was opened; open it again")
    return pack
