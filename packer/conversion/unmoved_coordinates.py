"""Unmoved coordinates: fields that may hold places in a picture, and that --resize and --exif rotate leave as they are.

A geometry moves pixels, and fields of the kinds boxes and points. A column `x`, a text `bbox` or a mask that came as
numbers stay behind their picture, so that whoever asks for a geometry is told their names. Which these are is told by
the name and the shape alone, the same for every source: a class, a share or a weight is none.
"""

from collections.abc import Iterable

from packer.schema import Field
from packer.sources._name_words import DEPTHS, has_coordinates, has_labels, words
from packer.sources._parse.folder_listing import listed, shown


def about_unmoved_coordinates(fields: Iterable[Field], moves: str, *, before: bool = False) -> list[str]:
    """The note on such fields. moves: the options that move pixels, as the user types them. before: whether the pack
    that the fields come from was made with them.
    """
    names = [shown(field.name) for field in fields if may_be_coordinates(field)]
    if not names:
        return []
    what = f"the pack was made with {moves}, which moves" if before else f"{moves} moves"
    return [
        f"{listed(names)}: stored as they are: {what} pictures, boxes and points; places in a picture among "
        "these are of the source's pixels"
    ]


def kept_files(fields: Iterable[Field]) -> list[Field]:
    """The hidden fields of files kept verbatim, which would contradict pixels that a geometry moves."""
    return [field for field in fields if field.hidden and field.kind == "bytes"]


def about_files_left_out(fields: Iterable[Field], moves: str) -> list[str]:
    """The note on such files, which a conversion that moves pixels leaves out. moves: as above."""
    names = [shown(field.name) for field in fields]
    if not names:
        return []
    return [
        f"{listed(names)}: left out: files kept as they were are of the source's pixels, which {moves} moves; "
        "packer extract will not have them"
    ]


def may_be_coordinates(field: Field) -> bool:
    """Whether a field that no geometry moves may hold places, by its name and its shape."""
    if field.hidden or field.kind not in ("number", "text", "json") or field.classes is not None:
        return False
    if field.starts is not None or field.into is not None:  # numbers of rows
        return False
    said = set(words(field.name)) | set(field.name.lower().split("_"))
    if has_labels(field.name) or said & DEPTHS:
        return len(field.shape or ()) > 1  # pixels; else a class
    if field.kind == "number" and field.dtype in ("bool", "uint8") and field.of is not None:
        return False  # a flag of a box
    return has_coordinates(field.name) or (field.kind == "number" and len(field.shape or ()) > 1)
