"""One shape: pictures for a format of arrays, whose pictures all have one shape and one dtype.

A few samples are looked at. What they have in common becomes the field's shape; a sample that has another is a bad one
when it is encoded. Where they differ, the conversion is refused before anything is written, with what would be lost.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from packer.conversion.options import ConversionOptions
from packer.errors import InvalidRequest, PackerError
from packer.geometry import Resize, upright
from packer.pack.label_orientation import PictureFrame, lies_upright
from packer.schema import MOST_PIXELS, PIXEL_KINDS, Field
from packer.sources.base import Source

_SHOWN = 3


class _Form(NamedTuple):
    """Of one picture, as it will be stored."""

    size: tuple[int, int]
    dtype: str


def with_one_shape(
    source: Source, options: ConversionOptions, fields: Sequence[Field], *, settled: Sequence[str], rows: Sequence[int]
) -> list[Field]:
    """The fields, those named in `settled` with the shape that all of their pictures have.

    rows: the samples that are looked at. Raises InvalidRequest where there is none.
    """
    main = next((field.name for field in fields if field.kind in PIXEL_KINDS), "")
    open_ones = [one for one in fields if one.name in settled and None in (one.shape or (None,))]
    found: dict[str, list[_Form]] = {one.name: [] for one in open_ones}
    for row in rows if open_ones else ():
        with suppress(PackerError):  # the conversion itself reports bad files, all of them
            frame = _frame(source, row, main)
            for name, forms in found.items():
                is_upright = _is_upright(source, options, name, frame, main=main)
                forms.append(_form(source, options, row, name, frame.orientation, is_upright=is_upright))
    differing = [
        f"{name} ({_sizes(forms)})" for name, forms in found.items() if len({form.size for form in forms}) != 1
    ]
    if differing:
        raise InvalidRequest(
            f"--to {options.to} holds pictures as arrays of one shape; these would be lost: {', '.join(differing)}. "
            "--resize WIDTHxHEIGHT stores all of one size, --fields leaves fields out, "
            f"--codec {open_ones[0].name}=png keeps the pictures as files beside, where only packer looks"
        )
    return [_settled(one, found[one.name]) if one.name in found else one for one in fields]


def _settled(field: Field, forms: Sequence[_Form]) -> Field:
    size = forms[0].size
    dtypes = {form.dtype for form in forms}
    dtype = dtypes.pop() if field.kind == "depth" and len(dtypes) == 1 else field.dtype
    return replace(field, shape=(*size, 3) if field.kind == "image" else size, dtype=dtype)


def _frame(source: Source, row: int, main: str) -> PictureFrame:
    """Of the sample's first picture, which turns all."""
    height, width, _, orientation = _described(source.value(row, main))
    stated = source.stated_size(row) if source.frame == "stated" else None
    return PictureFrame((height, width), orientation, stated)


def _is_upright(source: Source, options: ConversionOptions, name: str, frame: PictureFrame, *, main: str) -> bool:
    if name in source.companions:
        return options.sidecar_frame == "upright"  # those for which nobody said it are refused when they are encoded
    return lies_upright(source, source.schema[name], frame, main=main, sidecar_frame=None)


def _form(
    source: Source, options: ConversionOptions, row: int, name: str, orientation: int, *, is_upright: bool
) -> _Form:
    height, width, dtype, _ = _described(source.value(row, name))
    size = height, width
    if options.exif == "rotate" and not is_upright:
        size = upright(orientation, height, width).size
    if options.resize is not None:
        size = Resize.parse(options.resize).view(*size).size
    return _Form(size, dtype)


def _described(value: Any) -> tuple[int, int, str, int]:
    """Height, width, dtype, and EXIF orientation of a picture file or of pixels."""
    if isinstance(value, bytes):
        from packer.images import sniff  # only such a format needs it

        header = sniff(value, MOST_PIXELS)
        return header.height, header.width, header.dtype, header.orientation
    return value.shape[0], value.shape[1], str(value.dtype), 1


def _sizes(forms: Sequence[_Form]) -> str:
    """The sizes that were met, as WIDTHxHEIGHT, the first few."""
    return ", ".join(_shown(forms)) or "none that could be read"


def _shown(forms: Sequence[_Form]) -> Iterator[str]:
    sizes = list(dict.fromkeys(form.size for form in forms))
    yield from (f"{width}x{height}" for height, width in sizes[:_SHOWN])
    if len(sizes) > _SHOWN:
        yield "..."
