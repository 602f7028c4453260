"""estimate: how large a pack will be, from a few samples, before anything is written."""

from dataclasses import dataclass

from packer import formats
from packer.conversion.encode import Encoded, encoder_of
from packer.conversion.plan import Plan, probe_indices
from packer.schema import PIXEL_KINDS

_RECORD_OVERHEAD = 80  # index entry, key and numbers of one sample, roughly
_FILE_OVERHEAD = 2048  # half a block, which a file of its own leaves empty on average


@dataclass(frozen=True)
class Estimate:
    """pack_bytes: about what the pack will take; samples and source_bytes as planned.

    scratch_bytes: about what the largest part takes besides, only while it is written. parts: bytes of each.
    """

    samples: int
    source_bytes: int
    pack_bytes: int
    scratch_bytes: int
    parts: tuple[int, ...]


def estimate(plan: Plan) -> Estimate:
    """Kept bytes are known; what is encoded anew is judged from at most 16 samples spread over the source."""
    samples = len(plan.source)
    ratio = 1.0 if plan.keeps_bytes else _ratio(plan)
    writer = formats.load(plan.options.to).Writer
    payloads = [int(plan.sizes[part.start : part.stop].sum() * ratio) for part in plan.parts]
    pictures = sum(field.kind in PIXEL_KINDS for field in plan.schema)  # the values that are large
    per_sample = _RECORD_OVERHEAD + writer.files(plan.schema) * _FILE_OVERHEAD
    parts = tuple(
        writer.part_bytes(payload, len(part) * max(1, pictures)) + len(part) * per_sample
        for payload, part in zip(payloads, plan.parts, strict=True)
    )
    pack_bytes = sum(parts) + sum(plan.carried.sizes.values())
    return Estimate(samples, plan.source_bytes, pack_bytes, writer.scratch_bytes(max(payloads)), parts)


def _ratio(plan: Plan) -> float:
    encoder = encoder_of(plan)
    results = [encoder(index) for index in probe_indices(len(plan.source))]
    encoded = [result for result in results if isinstance(result, Encoded)]
    read = sum(result.source_bytes for result in encoded)
    return sum(len(value) for result in encoded for value in result.record.values()) / read if read else 1.0
