"""Extract destinations: the paths that `packer extract` gives to files of samples whose source has no such files."""

from collections.abc import Iterable, Mapping
from typing import Any

from packer.errors import InvalidRequest
from packer.files.safe_paths import components
from packer.images import file_suffixes
from packer.schema import KEY, PIXEL_KINDS, Field

FILES = Field("files", "json", "json", hidden=True)


def is_file(field: Field) -> bool:
    """Return whether `extract` writes a file for each value of a field."""
    return field.kind in (*PIXEL_KINDS, "text", "bytes") and field.name != KEY


def is_path(key: str) -> bool:
    """Return whether `extract` can write a file with this name."""
    try:
        components(key)
    except InvalidRequest:
        return False
    return True


def extracted_paths(
    key: str, number: int, fields: Iterable[Field], values: Mapping[str, Any], *, sniffs_bytes: bool = False
) -> dict[str, str]:
    """Return the path for each value: the key, the name of the field, and a suffix.

    The key alone is the path of the first image if it has the suffix of that image already.

    Args:
        key: The key of the sample.
        number: The number of the sample, which replaces a key that is not a path.
        fields: The fields that are files.
        values: The values of the sample.
        sniffs_bytes: Whether values of kind bytes that are image files have the suffix of an image.
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
    """Return the file suffixes that fit a value, the usual one first."""
    if field.kind == "text":
        return (".txt",)
    if field.kind == "bytes" and not sniffs_bytes:
        return (".bin",)
    if isinstance(value, bytes):
        return tuple(file_suffixes(value)) or (".bin",)
    return (".npy",) if field.kind == "depth" else (".png",)
