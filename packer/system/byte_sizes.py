"""Byte sizes: parsing of sizes such as 256M or 1.5GiB, and formatting of byte counts."""

from packer.errors import InvalidRequest

_PREFIXES = ("", "K", "M", "G", "T")


def parse_size(text: str) -> int:
    """Return the number of bytes of a size such as 0, 200GB or 1.5GiB. All units are powers of 1024, even GB.

    Raises:
        InvalidRequest: The text is not a size.
    """
    number = text.strip().upper().removesuffix("IB").removesuffix("B")
    prefix = number[-1:] if number[-1:] in _PREFIXES else ""
    try:
        size = float(number.removesuffix(prefix)) * 1024 ** _PREFIXES.index(prefix)
    except ValueError:
        size = -1
    if not 0 <= size < 1 << 62:
        raise InvalidRequest(f"{text!r}: expected a size such as 256M or 1G, or 0")
    return int(size)


def size_text(size: float) -> str:
    """Return a readable text for a number of bytes, such as `1.5 MB`. All units are powers of 1000."""
    for prefix in ("", "k", "M", "G"):
        if size < 1000:
            return f"{size:.1f} {prefix}B" if prefix else f"{size:.0f} bytes"
        size /= 1000
    return f"{size:.2f} TB"
