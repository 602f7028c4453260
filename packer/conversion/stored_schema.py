"""Stored schema: the schema of a pack, made from the schema of a source.

The codec of a field is the choice of the user, or the codec that the format requires, or a default. A format that
stores arrays needs one shape for all images, and a few samples are read to find it. Formats of other tools read fields
under fixed names such as `image` and `label`. These names are slots; this module chooses the field of each slot.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from packer import codecs, formats
from packer.conversion.options import ConversionOptions
from packer.errors import InvalidRequest, PackerError
from packer.formats.base import Slot
from packer.geometry import Resize, upright
from packer.pack.label_orientation import ImageFrame, labels_are_upright
from packer.schema import MATRIX, MOST_PIXELS, PIXEL_KINDS, Field, Schema, Shape
from packer.sources.base import Source, probe_indices

ORIENTATION = Field("orientation", "number", "number", "uint8", (), hidden=True)
SOURCE_SIZE = Field("source_size", "number", "number", "int64", (2,), hidden=True)
_SHOWN_SIZES = 3


def kept_files(fields: Iterable[Field]) -> list[Field]:
    """Return the hidden fields that contain original files. These are not packed if images are resized or rotated."""
    return [field for field in fields if field.hidden and field.kind == "bytes"]


def make_stored_schema(
    source: Source, options: ConversionOptions, *, lossy: frozenset[str]
) -> tuple[Schema, frozenset[str]]:
    """Return `(schema of the pack, names of resized image fields whose codec the user did not choose)`.

    Options that do not fit the source raise InvalidRequest.

    Args:
        lossy: the names of image fields whose source files are mostly lossy.
    """
    moves = options.resize is not None or options.exif == "rotate"
    chosen = dict(options.codecs)
    if source.is_encoded:
        _check_repacking(source, options)
    own = (ORIENTATION, MATRIX, SOURCE_SIZE)  # a source pack has these fields; they are added again below
    packed = [field for field in _packed(source.schema, options.fields) if field not in own]
    if unknown := sorted(set(chosen) - {field.name for field in packed}):
        names = ", ".join(field.name for field in packed)
        raise InvalidRequest(f"--codec for field {unknown[0]!r}, which is not packed; fields: {names}")
    writer = formats.load(options.to).Writer
    in_slots = with_slots(Schema(tuple(packed)), writer.slots, options)
    # A source pack has raw pixels because of --resize. Other sources have raw pixels because the fields need them,
    # except in the slot of a file.
    file_slots = {slot.name for slot in writer.slots if slot.is_file}
    of_tool = writer.images_of_tool(codecs.described(in_slots))
    as_files = [name for name in of_tool if source.is_encoded or in_slots[name].slot in file_slots]
    stored: list[Field] = []
    defaulted = set()
    for field in packed:
        if moves and kept_files([field]):
            continue
        if field.name not in chosen and options.resize and field.kind in PIXEL_KINDS:
            defaulted.add(field.name)
        codec = chosen.get(field.name) or writer.codec_of(field)
        if codec is None:
            codec = _default_codec(field, options, lossy)
            if (options.resize is not None or field.name in as_files) and replace(
                field, codec=codec
            ).codec_name == "raw":
                codec = writer.instead_of_raw.get(field.kind, codec)
        stored.append(_with_codec(field, codec, options))
    if writer.one_shape:
        arrays = [field.name for field in packed if writer.codec_of(field) is not None and field.name not in chosen]
        stored = _with_one_shape(source, options, stored, arrays)
    if any(field.kind == "image" for field in stored):
        stored.append(ORIENTATION)
    if (moves or MATRIX in source.schema.fields) and any(field.kind in PIXEL_KINDS for field in stored):
        stored += [MATRIX, SOURCE_SIZE]
    schema = codecs.described(with_slots(Schema(tuple(stored)), writer.slots, options))
    if (reason := writer.refusal(schema)) is not None:
        raise InvalidRequest(reason)
    return schema, frozenset(defaulted)


def _check_repacking(source: Source, options: ConversionOptions) -> None:
    if options.exif == "rotate":
        raise InvalidRequest(f"{source.root}: --exif rotate is for original files; pack the original folder with it")
    for name, codec in options.codecs:
        if name not in source.schema:
            continue
        field = source.schema[name]
        if codecs.codec_class(replace(field, codec=codec)).keeps_files and not codecs.codec_class(field).keeps_files:
            raise InvalidRequest(
                f"{source.root}: --codec {name}={codec}: the pack contains {field.codec}, not the file's bytes; pack "
                "the original folder again"
            )


def _packed(schema: Schema, names: tuple[str, ...] | None) -> list[Field]:
    if names is None:
        return list(schema)
    missing = [name for name in names if name not in schema]
    if missing:
        raise InvalidRequest(f"--fields: the source has no field {missing[0]!r}; there are: {', '.join(schema.names)}")
    return [field for field in schema if field.name in names or field.name == "key"]


def _default_codec(field: Field, options: ConversionOptions, lossy: frozenset[str]) -> str:
    if options.resize is None or field.kind not in PIXEL_KINDS:
        return field.codec
    return "jpeg:95" if field.kind == "image" and field.name in lossy else "raw"


def _with_codec(field: Field, codec: str, options: ConversionOptions) -> Field:
    changed = replace(field, codec=codec, slot=None)  # a source pack may have slots
    if field.kind in PIXEL_KINDS:  # resized images need no limit
        limit = field.max_pixels if options.max_pixels is None else options.max_pixels
        changed = replace(changed, max_pixels=None if options.resize else limit)
    outgrown = options.resize is not None and None not in (field.shape or (None,))  # a pack that was resized before
    if (codec != field.codec or outgrown) and field.kind in PIXEL_KINDS:
        resize = Resize.parse(options.resize) if options.resize else None
        size: Shape = resize.fixed if resize and resize.fixed else (None, None)
        shape = (*size, 3) if field.kind == "image" else size
        untyped = "float32" if codec == "raw" else None  # other codecs store a dtype per value
        dtype = field.dtype or untyped if field.kind == "depth" else "uint16" if field.is_wide_mask else "uint8"
        changed = replace(changed, dtype=dtype, shape=shape)
    completed = codecs.codec_class(changed).complete(changed)
    codecs.make(completed)  # raises for a kind or an argument that the codec does not have
    return completed


# ---- formats whose images are arrays of one shape


def _with_one_shape(
    source: Source, options: ConversionOptions, fields: Sequence[Field], names: Sequence[str]
) -> list[Field]:
    """Return `fields`, with the shape of a few samples for those in `names`. Different shapes raise InvalidRequest."""
    main = next((field.name for field in fields if field.kind in PIXEL_KINDS), "")
    is_open = [field.name in names and None in (field.shape or (None,)) for field in fields]
    found: dict[str, list[tuple[tuple[int, int], str]]] = {
        field.name: [] for field, each in zip(fields, is_open, strict=True) if each
    }
    for row in probe_indices(len(source), is_sequential=source.is_sequential) if found else ():
        with suppress(PackerError):  # encoding reports all bad files
            height, width, _, orientation = _described(source.value(row, main))
            stated = source.stated_size(row) if source.frame == "stated" else None
            frame = ImageFrame((height, width), orientation, stated)
            for name, forms in found.items():
                forms.append(_form(source, options, row, name, frame, main=main))
    differing = [name for name, forms in found.items() if len({size for size, _ in forms}) != 1]
    if differing:
        lost = ", ".join(f"{name} ({_shown([size for size, _ in found[name]])})" for name in differing)
        raise InvalidRequest(
            f"--to {options.to} stores images as arrays of one shape; these differ: {lost}. --resize WIDTHxHEIGHT "
            f"stores all in one size, --fields leaves fields out, --codec {next(iter(found))}=png keeps files, which "
            "only packer reads"
        )
    return [_with_form(field, found[field.name]) if field.name in found else field for field in fields]


def _with_form(field: Field, forms: Sequence[tuple[tuple[int, int], str]]) -> Field:
    size, dtypes = forms[0][0], {dtype for _, dtype in forms}
    dtype = dtypes.pop() if field.kind == "depth" and len(dtypes) == 1 else field.dtype
    return replace(field, shape=(*size, 3) if field.kind == "image" else size, dtype=dtype)


def _form(
    source: Source, options: ConversionOptions, row: int, name: str, frame: ImageFrame, *, main: str
) -> tuple[tuple[int, int], str]:
    """Return `((height, width), dtype)` of image `name` after rotation and resize. `frame` describes image `main`."""
    if name in source.companions:
        is_upright = options.labels_orientation == "upright"  # without this option, encoding raises an error
    else:
        is_upright = labels_are_upright(source, source.schema[name], frame, main=main, orientation=None)
    height, width, dtype, _ = _described(source.value(row, name))
    size = height, width
    if options.exif == "rotate" and not is_upright:
        size = upright(frame.orientation, height, width).size
    if options.resize is not None:
        size = Resize.parse(options.resize).view(*size).size
    return size, dtype


def _described(value: Any) -> tuple[int, int, str, int]:
    """Return `(height, width, dtype, EXIF orientation)` of the bytes of an image file or of an array."""
    if isinstance(value, bytes):
        from packer.images import sniff  # imported only if the format needs it

        header = sniff(value, MOST_PIXELS)
        return header.height, header.width, header.dtype, header.orientation
    return value.shape[0], value.shape[1], str(value.dtype), 1


def _shown(sizes: Sequence[tuple[int, int]]) -> str:
    texts = [f"{width}x{height}" for height, width in dict.fromkeys(sizes)]
    more = ["..."] if len(texts) > _SHOWN_SIZES else []
    return ", ".join([*texts[:_SHOWN_SIZES], *more]) or "none that could be read"


# ---- slots of other tools' records


def with_slots(schema: Schema, slots: Sequence[Slot], options: ConversionOptions) -> Schema:
    """Return the schema in which `Field.slot` is set for each slot of the format.

    `options.slots` may name the field of a slot. Otherwise, the field has the name of the slot, or is the only visible
    field that fits. If a required slot has no field, raise InvalidRequest.
    """
    chosen = _chosen(schema, slots, options)
    for slot in slots:
        if slot.name in chosen:
            continue
        fitting = [field for field in schema if slot.fits(field) and field.name not in chosen.values()]
        default = _default_field(slot, fitting)
        if default is not None:
            chosen[slot.name] = default.name
        elif slot.is_needed:
            names = ", ".join(field.name for field in fitting)
            raise InvalidRequest(
                f"--to {options.to} needs {slot.what} as its {slot.name}; "
                + (f"name one: --export-as {slot.name}=FIELD, of {names}" if names else "the source has no such field")
            )
    of_field = {field: slot for slot, field in chosen.items()}
    return Schema(tuple(replace(field, slot=of_field.get(field.name)) for field in schema))


def _chosen(schema: Schema, slots: Sequence[Slot], options: ConversionOptions) -> dict[str, str]:
    known = {slot.name: slot for slot in slots}
    chosen: dict[str, str] = {}
    for name, field in options.slots:
        reason = None
        if name not in known:
            has = f"it has: {', '.join(known)}" if known else "slots are for the formats of other tools"
            reason = f"format {options.to!r} has no slot {name!r}; {has}"
        elif field not in schema:
            reason = f"no field {field!r}; there are: {', '.join(schema.names):.500}"
        elif not known[name].fits(schema[field]):
            numbers = f" {schema[field].dtype} of shape {schema[field].shape}" if schema[field].kind == "number" else ""
            reason = f"{field} is a field of kind {schema[field].kind}{numbers}, expected {known[name].what}"
        elif field in chosen.values():
            reason = f"{field} has a slot already; name another field"
        if reason is not None:
            raise InvalidRequest(f"--export-as {name}={field}: {reason}")
        chosen[name] = field
    return chosen


def _default_field(slot: Slot, fitting: Sequence[Field]) -> Field | None:
    """Return the fitting field with the slot's name, or the only fitting field that is not a plain number, or None."""
    visible = [field for field in fitting if not field.hidden]
    named = next((field for field in visible if field.name == slot.name), None)
    likely = [field for field in visible if field.kind != "number" or (field.classes and field.name != "split")]
    return named or (likely[0] if len(likely) == 1 else None)
