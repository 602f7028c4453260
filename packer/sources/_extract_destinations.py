"""Paths of the files that `packer extract` writes for samples of sources without separate files, such as arrays."""

from collections.abc import Iterable, Mapping
from typing import Any

from packer.errors import InvalidRequest
from packer.files.safe_paths import components
from packer.images import file_suffixes
from packer.schema import KEY, PIXEL_KINDS, Field

FILES = Field("files", "json", "json", hidden=True)


def is_file(field: Field) -> bool:
    """Return True if `extract` writes a file for each value of a field."""
    return field.kind in (*PIXEL_KINDS, "text", "bytes") and field.name != KEY


def is_path(key: str) -> bool:
    """Return True if a key is a safe relative path, which `extract` can use as a file name."""
    try:
        components(key)
    except InvalidRequest:
        return False
    return True


def extracted_paths(
    key: str, number: int, fields: Iterable[Field], values: Mapping[str, Any], *, sniffs_bytes: bool = False
) -> dict[str, str]:
    """Return `{field name: relative path}` for the values of a sample. Fields without a value are not included.

    Paths are `KEY.FIELD.SUFFIX`. The first image is `KEY.SUFFIX`, or `KEY` if the key already ends in that suffix.

    Args:
        key: Key of the sample.
        number: Position of the sample, used instead of a key that is not a valid path.
        fields: Fields that are written as files.
        values: Values of the sample.
        sniffs_bytes: True: an image file in a field of kind bytes gets the suffix of its format. False: `.bin`.
    """
    stem = key if is_path(key) else f"{number:08d}"
    paths: dict[str, str] = {}
    has_image = False
    for field in fields:
        value = values.get(field.name)
        is_first_image = field.kind in PIXEL_KINDS and not has_image
        has_image = has_image or is_first_image
        if value is None:
            continue
        suffixes = _suffixes(field, value, sniffs_bytes=sniffs_bytes)
        if is_first_image and stem.lower().endswith(suffixes):
            paths[field.name] = stem
        else:
            paths[field.name] = f"{stem}{'' if is_first_image else f'.{field.name}'}{suffixes[0]}"
    return paths


def _suffixes(field: Field, value: Any, *, sniffs_bytes: bool) -> tuple[str, ...]:
    if field.kind == "text":
        return (".txt",)
    if field.kind == "bytes" and not sniffs_bytes:
        return (".bin",)
    if isinstance(value, bytes):
        return tuple(file_suffixes(value)) or (".bin",)
    return (".npy",) if field.kind == "depth" else (".png",)
