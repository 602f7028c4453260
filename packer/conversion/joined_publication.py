"""Joined publication: a new pack that begins with the parts of existing packs.

Parts never change, so the new pack contains hard links to them. The index is written again.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from packer.conversion.plan import Plan
from packer.conversion.publication import FolderPublication, copy_part
from packer.conversion.work_folder_layout import PACK
from packer.errors import InvalidRequest
from packer.files.work_folder import WorkFolder
from packer.pack import manifest as manifests
from packer.pack.manifest import APPENDED, EXTRAS, INDEX, Manifest, Part
from packer.pack.sample_index import merge


class JoinedPublication(FolderPublication):
    """Publication of the parts of existing packs, followed by the parts of the plan.

    Attributes:
        packs: the folders and manifests of the existing packs. The new pack has the options and extras of the first.
        published: the manifest of the new pack, set by `publish`.
    """

    published: Manifest

    def __init__(
        self, plan: Plan, target: Path, work: WorkFolder, packs: Mapping[Path, Manifest], *, overwrite: bool
    ) -> None:
        super().__init__(plan, target, work, overwrite=overwrite)
        self.packs = packs

    def publish(self, manifest: Manifest) -> None:
        """Link the parts of `packs`, index all samples, and publish. `manifest` lists only the parts of the plan."""
        with self.work.folder(PACK) as pack:
            pack.remove(INDEX)  # of the new parts
        parts: list[Part] = []
        for folder, old in self.packs.items():
            for part in old.parts:
                name = self.plan.part_name(len(parts) - self.plan.first_part)
                copy_part(folder / part.name, self.pack / name, links=True)
                parts.append(replace(part, name=name))
            if old.extras:
                copy_part(folder / EXTRAS, self.pack / EXTRAS, links=True)
        pieces = [*(folder / INDEX for folder in self.packs), *(self.pieces / part.name for part in manifest.parts)]
        index = merge(pieces, self.pack, self.plan.schema)
        for folder, old in self.packs.items():
            if manifests.read(folder) != old:
                raise InvalidRequest(f"{folder}: changed meanwhile; run again")
        joined = replace(self._joined(manifest), parts=(*parts, *manifest.parts), index=index)
        self.published = joined.sealed()
        self.published.check()
        super().publish(self.published)

    def _joined(self, new: Manifest) -> Manifest:
        source, (first, *others) = self.plan.source, self.packs.values()
        every = [first, *others, new]
        names = ("samples", "files", "bytes")
        described = {name: sum(each.source.get(name, 0) for each in every) for name in names}
        digests = " ".join(str(each.source.get("digest")) for each in every)
        described["digest"] = hashlib.sha256(digests.encode()).hexdigest()
        options = first.options
        if new.samples:
            options = _with_entry(options, {"after": first.pack_id, "source": new.options["source"]})
            described = {**_with_entry(first.source, new.source), **described}
        tried = {*(source.key(row) for row in range(len(source))), *(key for key, _ in new.skipped)}
        return replace(
            first,
            samples=sum(each.samples for each in every),
            schema=new.schema,
            options=options,
            source={**first.source, **described},
            written_by=new.written_by,
            skipped=(*(item for item in first.skipped if item[0] not in tried), *new.skipped),
            incomplete=tuple(item for each in every for item in each.incomplete),
        )


def _with_entry(data: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    return {**data, APPENDED: [*data.get(APPENDED, ()), entry]}
