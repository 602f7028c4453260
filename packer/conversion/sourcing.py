"""Request: what the user says of the source, made into a Source with its sidecars and splits."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from packer import sources
from packer.conversion.presets import source_options
from packer.conversion.repacking import KIND, PackSource
from packer.errors import Refused
from packer.pack import manifest as manifests
from packer.sources.adding.sidecars import Sidecar, add_sidecars
from packer.sources.adding.splits import Split, add_splits
from packer.sources.base import Source, read_file


def link_options(follow_links: bool) -> dict[str, Any]:
    """The option of a source that says so, only where it does: what nobody asked for stands in no manifest."""
    return {"follow_links": True} if follow_links else {}


@dataclass(frozen=True)
class Request:
    """kind: a source's name, or "auto". options: its keyword arguments, only those that the user gave.

    sidecars: NAME=SUFFIX:KIND each. splits: NAME=FILE each.
    """

    kind: str = "auto"
    options: Mapping[str, Any] = field(default_factory=dict)
    sidecars: tuple[str, ...] = ()
    splits: tuple[str, ...] = ()

    def open(self, root: Path) -> tuple[Source, str]:
        """The source, and a line that says what was recognised; raises Refused, BadInput."""
        if not root.is_dir():
            raise Refused(f"{root}: not a folder; give the folder of the data set")
        if self.kind == KIND or (self.kind == "auto" and os.path.lexists(root / manifests.NAME)):
            return self._open_pack(root)
        kind, found = (self.kind, f"read as {self.kind}") if self.kind != "auto" else self._detect(root)
        sidecars = [Sidecar.parse(text) for text in self.sidecars]
        module = sources.load(kind)
        options = self._options(module.Source, kind)
        if sidecars and "ignore_suffixes" in module.Source.options():
            options["ignore_suffixes"] = tuple(sidecar.suffix for sidecar in sidecars)
        source: Source = module.Source(root, **options)
        if sidecars:
            policy = self.options.get("missing", "error")
            source = add_sidecars(source, sidecars, missing="skip" if policy == "skip" else "error")
        if self.splits:
            source = add_splits(source, [Split.parse(text) for text in self.splits])
        return source, found

    def preset(self, root: Path) -> "Request":
        """The same with what a preset asks of the source, where the user did not say it."""
        if not root.is_dir() or self.kind == KIND or os.path.lexists(root / manifests.NAME):
            return self
        kind = self.kind if self.kind != "auto" else self._detect(root)[0]
        return replace(self, kind=kind, options={**source_options(kind), **self.options})

    def _detect(self, root: Path) -> tuple[str, str]:
        return sources.detect(root, follow_links=bool(self.options.get("follow_links")))

    def _open_pack(self, root: Path) -> tuple[Source, str]:
        self._options(PackSource, KIND)  # it has none
        if self.sidecars or self.splits:
            raise Refused(f"{root}: a pack takes no --sidecar and no --split; pack the original folder with them")
        source = PackSource(root)
        return source, f"pack of {len(source)} samples, format {source.manifest.format}"

    def _options(self, maker: type[Source], kind: str) -> dict[str, Any]:
        taken = set(maker.options())
        unfit = sorted(set(self.options) - taken - ({"missing"} if self.sidecars else set()))
        if unfit:
            known = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(taken - {"ignore_suffixes"}))
            raise Refused(f"source {kind!r} has no option --{unfit[0].replace('_', '-')}; it has: {known or 'none'}")
        return {name: value for name, value in self.options.items() if name in taken}

    def to_json(self, source: Source) -> dict[str, Any]:
        """For the manifest and for resuming: list files by their content, nothing of the machine.

        Of a pack: its id, and the options that it was made with.
        """
        if isinstance(source, PackSource):
            return {"kind": KIND, "pack_id": source.manifest.pack_id, "options": source.manifest.options}
        splits = [Split.parse(text) for text in self.splits]
        return {
            "kind": source.kind,
            "options": dict(self.options),
            "sidecars": list(self.sidecars),
            "splits": {split.name: hashlib.sha256(read_file(split.file)).hexdigest() for split in splits},
        }
