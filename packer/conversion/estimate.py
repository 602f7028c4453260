"""estimate: how large a pack will be, from a few samples, before anything is written."""

from dataclasses import dataclass

from packer import formats
from packer.conversion.copying import encoder_of
from packer.conversion.encoding import Encoded
from packer.conversion.plan import Plan, probe_indices

_RECORD_OVERHEAD = 80  # index entry, tree entry and page rounding of one sample, roughly

_FILE_OVERHEAD = 2048  # half a block, which a file of its own leaves empty on average


@dataclass(frozen=True)
class Estimate:
    """pack_bytes: about what the pack will take; samples and source_bytes as planned.

    scratch_bytes: about what the largest part takes besides, only while it is written.
    """

    samples: int
    source_bytes: int
    pack_bytes: int
    scratch_bytes: int


def estimate(plan: Plan) -> Estimate:
    """Kept bytes are known; what is encoded anew is judged from at most 16 samples spread over the source."""
    samples = len(plan.source)
    ratio = 1.0 if plan.keeps_bytes else _ratio(plan)
    pack_bytes = int(plan.source_bytes * ratio) + samples * _RECORD_OVERHEAD + sum(plan.carried.sizes.values())
    writer = formats.load(plan.options.to).Writer
    pack_bytes += writer.files(plan.schema) * samples * _FILE_OVERHEAD
    largest = max(int(plan.sizes[part.start : part.stop].sum()) for part in plan.parts)
    return Estimate(samples, plan.source_bytes, pack_bytes, writer.scratch_bytes(int(largest * ratio)))


def _ratio(plan: Plan) -> float:
    encoder = encoder_of(plan)
    results = [encoder(index) for index in probe_indices(len(plan.source))]
    encoded = [result for result in results if isinstance(result, Encoded)]
    read = sum(result.source_bytes for result in encoded)
    return sum(len(value) for result in encoded for value in result.record.values()) / read if read else 1.0
