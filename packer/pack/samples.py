"""SampleReader: decoded samples of an open pack, as NumPy arrays and plain values, points in output pixels."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from packer import codecs, decoders
from packer.codecs.base import Buffer, Codec
from packer.errors import BadInput, CorruptRecord, Refused
from packer.geometry import move_boxes, move_points
from packer.pack.opening import Pack
from packer.schema import Field, Schema

_MOVED = {"points": move_points, "boxes": move_boxes}


class SampleReader:
    """Reads the chosen fields; may be used by many threads.

    The key and the number columns come from the index, which was checked as a whole when the pack was opened; all
    other fields are read from the part, checked and decoded.
    """

    def __init__(self, pack: Pack, names: Sequence[str] | None, *, decoder: str = "auto") -> None:
        """names: fields to read, None for all that are not hidden; raises UnknownKey for one that is not there."""
        if decoder not in decoders.NAMES:
            raise Refused(f"decoder={decoder!r}: expected one of {', '.join(decoders.NAMES)}")
        self.pack = pack
        chosen = names if names is not None else [field.name for field in pack.schema if not field.hidden]
        self.schema: Schema = pack.schema.select(chosen)
        self._stored = [field.name for field in self.schema if not field.is_column and field.name != "key"]
        strict = pack.verify == "never"  # else the crc32 says that the bytes are those that were validated when packed
        self._codecs = {name: _codec(pack.schema[name], decoder, strict) for name in self._stored}
        self._columns = {field.name: pack.index.column(field.name) for field in self.schema if field.is_column}
        self._matrices = pack.index.column("matrix") if "matrix" in pack.schema else None

    def sample(self, index: int) -> dict[str, Any]:
        """All chosen fields of a sample, in their order; raises CorruptRecord. 0 <= index < len(pack)."""
        sample: dict[str, Any] = {}
        with self.pack.record(index, self._stored) as record:
            for field in self.schema:
                if field.name in record:
                    sample[field.name] = self.decode(index, field, record[field.name])
                else:
                    sample[field.name] = self.indexed(index, field)
        return sample

    def indexed(self, index: int, field: Field) -> Any:
        """A value that the index holds: the key, or a number (a Python number, or a copied array)."""
        if field.name == "key":
            return self.pack.index.key(index)
        value = self._columns[field.name][index]
        return value.item() if not field.shape else value.astype(field.dtype)

    def column(self, name: str, indices: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """A number column at these samples: a copy in native byte order."""
        return self._columns[name][indices].astype(self.pack.schema[name].dtype)

    def decode(self, index: int, field: Field, value: Buffer, out: npt.NDArray[Any] | None = None) -> Any:
        """One value; depth as float32, points and boxes moved to output pixels. out: as Codec.decode wants it."""
        converts = field.kind == "depth" and field.dtype != "float32"
        try:
            decoded = self._codecs[field.name].decode(value, None, None if converts else out)
        except (BadInput, CorruptRecord) as error:
            raise CorruptRecord(f"{self.pack.where(index, field.name)}: does not decode: {error}") from error
        if converts:
            if out is None:
                return decoded.astype(np.float32)
            out[...] = decoded
            return out
        if field.kind in _MOVED and self._matrices is not None:
            return _MOVED[field.kind](decoded, self._matrices[index])
        return decoded

    def shape(self, field: Field, value: Buffer) -> tuple[int, ...]:
        """Shape of a picture, from the schema or from the value's header."""
        fixed = field.shape if field.shape and None not in field.shape else self._codecs[field.name].shape(value)
        return tuple(int(length or 0) for length in fixed)

    @property
    def stored(self) -> list[str]:
        """Names of the chosen fields that are read from the part."""
        return self._stored


def _codec(field: Field, decoder: str, strict: bool) -> Codec:
    codec: Codec = codecs.load(field.codec.partition(":")[0]).Codec(field, decoder=decoder, strict=strict)
    return codec
