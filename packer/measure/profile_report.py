"""What `packer profile` says: the stages, which of them limits and what helps, and the same as JSON."""

from collections.abc import Iterator
from typing import Any

from packer.measure.figures import table
from packer.measure.profile import LASTING, STAGES, Profile

NAMES = {"copy": "copy to device"}
_HELPS = {
    "read": "keep the pack in memory (packer stage), or pack less: --resize, --fields",
    "decode": "store less to decode: packer convert --resize, or --codec FIELD=raw",
    "warp": "store the pictures nearer to the size that training needs: packer convert --resize",
    "transform": "do it on the GPU, or as a geometry (packer.geometry) that is fused with decoding",
    "collate": "give all samples one shape, and leave out fields that training does not use (fields=)",
    "copy": "copy uint8 and make floats on the GPU; leave out fields that training does not use (fields=)",
}
_KEYS = 3


def text(found: Profile, *, cores: int) -> list[str]:
    """The table, and what is to be said of it."""
    fields = sorted({of for _, of in found.seconds if of})
    used = [name for name in fields if any(_shown(found, stage, name) for stage in STAGES)]
    head = ("stage", "ms/sample", "share", *used)
    rows = []
    for stage in STAGES:
        if (stage == "copy" and found.device is None) or (stage == "transform" and not found.of(stage)):
            continue
        share = f"{found.of(stage) / found.total:.0%}" if stage in LASTING else "1st epoch"
        cells = (_shown(found, stage, name) for name in used)
        rows.append((NAMES.get(stage, stage), f"{found.of(stage):.3f}", share, *cells))
    rows.append(("total", f"{found.total:.3f}", "", *("" for _ in used)))
    return [*table(head, rows), "", verdict(found, cores), *_notes(found)]


def _shown(found: Profile, stage: str, name: str) -> str:
    """Milliseconds of a field in a stage; nothing where they are too few to be seen."""
    milliseconds = found.seconds.get((stage, name), 0.0) / found.samples * 1e3
    return f"{milliseconds:.3f}" if milliseconds >= 0.0005 * max(1.0, found.total) else ""


def verdict(found: Profile, cores: int) -> str:
    """Which stage limits, what that allows, and what helps."""
    rate = 1e3 / max(found.total, 1e-9)
    stage = found.limit
    of = f"{found.of(stage):.2f} of {found.total:.2f} ms per sample, {found.of(stage) / max(found.total, 1e-9):.0%}"
    allows = f"{rate:.0f} samples/s in one thread, at most {rate * cores:.0f} on {cores} cores"
    return f"{NAMES.get(stage, stage).capitalize()} limits: {of}; {allows}. To go faster: {_help(found, stage)}."


def _help(found: Profile, stage: str) -> str:
    """What helps, with the field that takes longest there."""
    fields = {of: seconds for (name, of), seconds in found.seconds.items() if name == stage and of}
    return _HELPS[stage].replace("FIELD", max(fields, key=fields.__getitem__, default="FIELD"))


def _notes(found: Profile) -> Iterator[str]:
    if found.device is None:
        yield "Copy to device: left out, torch finds no GPU here."
    worst = ", ".join(f"{key!r} {seconds * 1e3:.1f} ms" for seconds, key in found.worst[:_KEYS])
    yield f"Slowest samples: {worst}."


def document(found: Profile, **options: Any) -> dict[str, Any]:
    """Everything, for programs; milliseconds per sample."""
    fields: dict[str, dict[str, float]] = {}
    for (stage, name), seconds in found.seconds.items():
        if name:
            fields.setdefault(stage, {})[name] = seconds / found.samples * 1e3
    return {
        "title": "packer profile",
        "options": options,
        "samples": found.samples,
        "device": found.device,
        "ms_per_sample": {stage: found.of(stage) for stage in STAGES},
        "ms_per_sample_by_field": fields,
        "limit": found.limit,
        "slowest": [{"key": key, "ms": seconds * 1e3} for seconds, key in found.worst],
    }
