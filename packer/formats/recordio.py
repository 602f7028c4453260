"""RecordIO: a .rec file per part as MXNet's im2rec writes it, with its index and its list. DALI reads it too.

Layout of `part-00000/` (see also `_foreign_part`):

| file       | content                                                                                                |
|------------|--------------------------------------------------------------------------------------------------------|
| data.rec   | frames (packer.layouts.recordio_frames) of im2rec's header, labels and the image's bytes               |
| data.idx   | a line `row<TAB>offset` for each record                                                                |
| data.lst   | a line `row<TAB>label ...<TAB>key` for each record                                                     |
| values.npz | the places of the images, and every other field                                                        |

The image and the label are the fields with the slots `image` and `label`. The label is 0 without a field. Otherwise:
* One whole number is the header's float32, which is exact up to 2^24.
* float32 numbers of one shape, such as the corners of a rectangle, follow the header, and their count is its flag.

A record is split where it contains the magic number at a multiple of 4, as in dmlc-core. The place of its image then
has a negative size, and the reader joins the pieces.
Source: packer.layouts.recordio_frames; MXNet, tools/im2rec.py.
"""

from collections.abc import Mapping

import numpy as np

from packer.errors import BadInput, CorruptPack, InvalidRequest
from packer.formats import base
from packer.formats._foreign_part import IMAGE, LABEL, ForeignLayout, ForeignReader, ForeignWriter, in_slot_image
from packer.layouts.recordio_frames import MAGIC, MOST_BYTES, frames, image_header, magic_places, unframed, unpacked
from packer.schema import KEY, Field, Schema

SUFFIX = ""
_DATA, _INDEX, _LIST = "data.rec", "data.idx", "data.lst"
_FRAME_BYTES = 8
_RECORD_BYTES = 40  # about, of a record without image and labels
_EXACT = 1 << 24  # float32 holds every whole number up to it


def _is_label(field: Field) -> bool:
    is_vector = field.kind == "number" and field.dtype == "float32" and field.is_column
    return LABEL.fits(field) or is_vector


LAYOUT = ForeignLayout("MXNet and DALI", _DATA, (_INDEX, _LIST), in_slot_image)


class Writer(ForeignWriter):
    """Appends a record to data.rec, and a line to data.idx and to data.lst."""

    layout = LAYOUT
    needs_label = True
    labels = range(-_EXACT, _EXACT + 1)
    slots = (
        IMAGE._replace(is_needed=True),
        base.Slot("label", "one whole number, or float32 numbers of one shape", _is_label),
    )

    @classmethod
    def part_bytes(cls, payload_bytes: int, values: int) -> int:
        return payload_bytes + values * 2 * _RECORD_BYTES

    @classmethod
    def shown(cls, schema: Schema) -> Mapping[str, str]:
        return {KEY: KEY, **super().shown(schema)}

    def _begin(self, payload_bytes: int) -> None:
        self._file, self._index, self._list = self._make(_DATA), self._make(_INDEX), self._make(_LIST)
        self._at = 0
        (self._image,) = self._held
        label = self.schema.in_slot("label")
        self._label = label.name if label is not None else None
        self._dtype = np.dtype(label.dtype).newbyteorder("<") if label is not None else np.dtype("<i8")

    def _check(self, values: Mapping[str, bytes]) -> None:
        size = len(values[self._image]) + len(image_header(self._labels(values), 0))
        if size > MOST_BYTES:
            raise InvalidRequest(f"{self.path}: a record of {size:,} bytes, RecordIO holds at most {MOST_BYTES:,}")

    def _labels(self, values: Mapping[str, bytes]) -> float | list[float]:
        """Return the whole number of the label field as a float, or its float32 numbers as a list; 0.0 without it."""
        if self._label is None:
            return 0.0
        numbers = np.frombuffer(values[self._label], self._dtype)
        return numbers.tolist() if self._dtype.kind == "f" else float(numbers[0])

    def _append(self, row: int, values: Mapping[str, bytes]) -> None:
        labels, image = self._labels(values), values[self._image]
        # DALI does not join a header that the magic number splits
        header = image_header(labels, 0 if row == MAGIC else row)
        data = header + image
        cuts = magic_places(data)
        framed = frames(data, cuts)
        size = sum(map(len, framed))
        self._file.writelines(framed)
        self._index.write(b"%d\t%d\n" % (row, self._at))
        shown = "\t".join(map(_shown, labels if isinstance(labels, list) else [labels]))
        self._list.write(b"%d\t%s\t%s\n" % (row, shown.encode(), _path(values.get(KEY, b""), row)))
        if cuts:
            self._place([(self._at, -size)])
        else:
            self._place([(self._at + _FRAME_BYTES + len(header), len(image))])
        self._at += size


def _shown(label: float) -> str:
    """Return a label as text, formatted as im2rec formats labels in its list files."""
    return f"{label:.6f}" if label.is_integer() else repr(label)


def _path(key: bytes, row: int) -> bytes:
    """Return the path of a record in data.lst: its key, or the row if the key cannot be in a line."""
    is_plain = key.strip() and not any(byte < ord(" ") for byte in key)
    return key if is_plain and key == key.strip() else b"%08d" % row


class Reader(ForeignReader):
    """Returns slices of data.rec and values.npz, and joins the pieces of images that are split."""

    layout = LAYOUT

    def _joined(self, span: memoryview, row: int) -> bytes:
        try:
            return unpacked(unframed(bytes(span)))[1]
        except BadInput as error:
            raise CorruptPack(f"{self.path / _DATA}: row {row}: {error.message}") from error
