"""Sample images: the pixels of one sample for a browser: small, in the stored size, or as training sees them.

A small image is decoded at the scale that it needs. Depth and masks have the colors of `packer view -o`, and the value
0 of a mask is transparent. An image in the stored size is lossless.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer import codecs
from packer.errors import InvalidRequest, UnknownKey
from packer.formats.base import Record
from packer.geometry import Geometry, View, draw, resized_crop
from packer.inspect.value_drawing import bmp_bytes, colored_depth, jpeg_bytes, mask_colors, png_bytes, scale_of
from packer.pack.sample_decoder import SampleDecoder
from packer.schema import PIXEL_KINDS, Field

MOST_WIDTH = 2048  # of a thumbnail and of an image as trained
_MOST_SIDE = 4096
_MOST_DEPTH_PIXELS = 16 << 20
_MEDIA_TYPES = {name: f"image/{name}" for name in ("jpeg", "png", "bmp", "tiff", "webp")}
FILE = "application/octet-stream"


class ImageFile(NamedTuple):
    """A file for the browser. `media_type` is its Content-Type."""

    data: bytes
    media_type: str


class Training(NamedTuple):
    """The geometry that training applies to samples. Its random numbers are those of packer.Loader in epoch 0."""

    geometry: Geometry
    seed: int

    def views(self, decoder: SampleDecoder, row: int, record: Record) -> tuple[View, dict[str, View]]:
        """Return the view of the first image and of all shapes, and by field the views of images that need another.

        Raises InvalidRequest if the result has more than 2048 px a side.
        """
        random = draw(self.seed, 0, np.asarray([row], np.int64), self.geometry.draws)[0].tolist()
        stored = {name: decoder.stored_image(row, name, record[name]) for name in decoder.images}
        main, others = decoder.views(row, self.geometry, stored, random)
        if main is None or max(main.size) > MOST_WIDTH:
            raise InvalidRequest(f"geometry {self.geometry}: expected a result of at most {MOST_WIDTH} px a side")
        return main, others


class SampleImages:
    """Makes the images of the samples of a pack. Thread-safe. The methods raise CorruptRecord and UnknownKey."""

    def __init__(self, decoder: SampleDecoder) -> None:
        self._decoder = decoder

    def image(self, row: int, name: str, width: int) -> ImageFile:
        """Return an image at most `width` px wide. 0 returns the stored size, shrunk to at most 4096 px a side."""
        field = self._pixel_field(name)
        with self._decoder.pack.record(row, [name]) as record:
            stored = self._decoder.stored_image(row, name, record[name])
            view = _fitting(stored.shape[0], stored.shape[1], width or _MOST_SIDE)
            pixels = self._decoder.decode(row, field, record[name], stored=stored, view=view)
        return _drawn(field, pixels, is_lossless=not width)

    def depth(self, row: int, name: str) -> npt.NDArray[np.float32]:
        """Return the depth, float32 (H, W). Raises InvalidRequest for another kind or more than 16 * 2**20 pixels."""
        field = self._pixel_field(name)
        if field.kind != "depth":
            raise InvalidRequest(f"field {name!r}: expected kind depth, found {field.kind}")
        with self._decoder.pack.record(row, [name]) as record:
            stored = self._decoder.stored_image(row, name, record[name])
            if stored.shape[0] * stored.shape[1] > _MOST_DEPTH_PIXELS:
                raise InvalidRequest(f"field {name!r}: the page shows values up to {_MOST_DEPTH_PIXELS} pixels")
            depth: npt.NDArray[np.float32] = self._decoder.decode(row, field, record[name], stored=stored)
        return depth.astype("<f4", copy=False)

    def trained(self, row: int, name: str, training: Training) -> ImageFile:
        """Return an image as training sees it. Raises InvalidRequest if it has more than 2048 px a side."""
        field, decoder = self._pixel_field(name), self._decoder
        with decoder.pack.record(row, decoder.images) as record:
            main, others = training.views(decoder, row, record)
            pixels = decoder.decode(row, field, record[name], view=others.get(name, main))
        return _drawn(field, pixels, is_lossless=False)

    def original(self, row: int, name: str) -> ImageFile:
        """Return the image file that the pack stores. Raises UnknownKey if the codec of the field stores no files."""
        field = self._pixel_field(name)
        if not codecs.codec_class(field).keeps_files:
            raise UnknownKey(f"field {name!r}: its codec {field.codec} does not keep files")
        with self._decoder.pack.record(row, [name]) as record:
            header = self._decoder.stored_image(row, name, record[name]).header
            return ImageFile(bytes(record[name]), _MEDIA_TYPES.get(header.format, FILE) if header else FILE)

    def _pixel_field(self, name: str) -> Field:
        field = self._decoder.schema[name]
        if field.kind not in PIXEL_KINDS:
            raise UnknownKey(f"field {name!r} has kind {field.kind}; images: {', '.join(self._decoder.images)}")
        return field


def _fitting(height: int, width: int, most: int) -> View | None:
    """Return the view that shrinks an image to at most `most` px in width and 4096 px in height; None if it fits."""
    scale = min(1.0, most / max(width, 1), _MOST_SIDE / max(height, 1))
    size = max(1, round(height * scale)), max(1, round(width * scale))
    return None if scale == 1.0 else resized_crop(0, 0, height, width, size=size)


def _drawn(field: Field, values: npt.NDArray[Any], *, is_lossless: bool) -> ImageFile:
    if not values.size:
        raise UnknownKey(f"field {field.name!r}: this sample has an image without pixels")
    if field.kind == "mask":
        colors, opacity = mask_colors(values)
        pixels = np.dstack([colors, np.rint(opacity * 255).astype(np.uint8)])
        return ImageFile(png_bytes(pixels, level=1), "image/png")
    if field.kind == "depth":
        values = colored_depth(values, scale_of(values, field.invalid), invalid=field.invalid)
    return ImageFile(bmp_bytes(values), "image/bmp") if is_lossless else ImageFile(jpeg_bytes(values), "image/jpeg")
