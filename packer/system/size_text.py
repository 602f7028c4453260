"""Size text: bytes as people write them, such as 256M or 1.5GiB."""

from packer.errors import InvalidRequest

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def parse_size(text: str) -> int:
    """Bytes from 256M, 1.5GiB, 200GB, 0, all in powers of 1024; raises InvalidRequest."""
    number = text.strip().upper().removesuffix("IB").removesuffix("B")
    unit = number[-1:] if number[-1:] in _UNITS and number[-1:] else ""
    try:
        size = float(number.removesuffix(unit)) * _UNITS[unit]
    except ValueError:
        raise InvalidRequest(f"{text!r}: expected a size such as 256M or 1G, or 0") from None
    if not 0 <= size < 1 << 62:
        raise InvalidRequest(f"{text!r}: expected a size such as 256M or 1G, or 0")
    return int(size)
