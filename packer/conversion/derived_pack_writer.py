"""Derived pack writer: saves a collection, which exists in memory only, in a folder."""

import os
from dataclasses import replace
from pathlib import Path

from packer.conversion.work_folder_layout import NAMES, PACK
from packer.errors import InvalidRequest, PackExists
from packer.files.work_folder import beside, work_folder
from packer.pack import manifest as manifests
from packer.pack.manifest import INDEX, MemberPack
from packer.pack.reader import Pack
from packer.pack.sample_index import file_forms, write_index
from packer.pack.source_paths import made_of


def save_collection(pack: Pack, target: Path) -> None:
    """Write a collection to the new folder `target`: the manifest, an index, and the rows of its members.

    A killed process leaves no `target`. Raises PackExists, StorageError, InvalidRequest for an index of version 1.
    """
    if not {*file_forms(pack.schema)} <= {*pack.index.arrays}:
        raise InvalidRequest(f"{pack.folder}: its index is of version 1: packer convert makes a pack to collect from")
    if os.path.lexists(target):
        raise PackExists(f"{target}: already there; choose another name for the collection")
    with work_folder(beside(target), NAMES) as work:
        work.clear()
        work.make_folder(PACK).close()
        folder = work.inside / PACK
        index = write_index(folder / INDEX, pack.index.arrays, pack.schema)
        above = Path(os.path.realpath(target.absolute().parent)) / target.name
        members = tuple(
            MemberPack(
                member.place if member.is_remote else os.path.relpath(os.path.realpath(member.folder), above),
                member.manifest.pack_id,
                member.manifest.samples,
                dict(member.names),
            )
            for member in pack.members
        )
        options = {"source": made_of(pack)}
        manifest = replace(pack.manifest, options=options, index=index, extras=(), members=members).sealed()
        manifest.check()
        with work.folder(PACK) as inner:
            inner.write_file(manifests.NAME, manifest.to_bytes())
        work.publish(PACK, work.above, target.name)
