"""One sha256 per decoded sample, the same whichever format, codec, decoder, thread or process it came through."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from packer.pack.reader import Pack
from packer.pack.sample_decoder import SampleDecoder
from tests.support import batch_holders


def sample_digest(sample: Mapping[str, Any]) -> str:
    """sha256 over the fields by name: dtype, shape and bytes of an array or tensor, canonical JSON of anything else."""
    found = hashlib.sha256()
    for name in sorted(sample):
        found.update(name.encode() + b"\0" + value_bytes(sample[name]) + b"\0")
    return found.hexdigest()


def value_bytes(value: Any) -> bytes:
    """What of a value is hashed; a tensor counts as the array that it is."""
    if hasattr(value, "numpy"):
        value = value.numpy()
    if isinstance(value, np.ndarray):
        little = np.ascontiguousarray(value, value.dtype.newbyteorder("<"))
        return f"{value.dtype.name}{value.shape}".encode() + little.tobytes()
    if isinstance(value, bytes):
        return value
    return json.dumps(value, sort_keys=True).encode()


def field_digests(folder: Path, names: Sequence[str] | None = None, **options: Any) -> Iterator[dict[str, str]]:
    """Field -> sha256 of its decoded value, for each sample of a pack; names: None for all, hidden ones too."""
    pack = Pack(folder)
    try:
        sample_decoder = SampleDecoder(pack, names or pack.schema.names, **options)
        for index in range(len(pack)):
            sample = sample_decoder.sample(index)
            yield {name: hashlib.sha256(value_bytes(value)).hexdigest() for name, value in sample.items()}
    finally:
        pack.close()


def same(one: Any, other: Any) -> bool:
    """Equality of samples."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other) and one.dtype == other.dtype
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other) and one.dtype == other.dtype
    return bool(one == other) and type(one) is type(other)


def digest_of(batches: Any) -> str:
    """sha256 over everything that a loader gives."""
    return hashlib.sha256("".join(map(batch_holders.digest, batches)).encode()).hexdigest()
