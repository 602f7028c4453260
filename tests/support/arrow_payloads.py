"""What pyarrow.serialize wrote when it was there: real bytes of three versions, by tests/layouts/payloads/record.py."""

import json
from pathlib import Path
from typing import Any

VERSIONS = ("0.10.0", "0.14.1", "11.0.0")
JPEG = b"\xff\xd8\xff\xe0jpeg\xff\xd9"
_FOLDER = Path(__file__).parent.parent / "layouts/payloads"


def recorded(version: str) -> dict[str, bytes]:
    """Payloads by the names of record.py."""
    found = json.loads((_FOLDER / f"pyarrow-{version}.json").read_text())
    return {name: bytes.fromhex(text) for name, text in found.items()}


def of_image(version: str, image: bytes, label: int | None = None) -> bytes:
    """A payload like the recorded one, with other bytes in it: of 10 bytes like those that it had."""
    made = recorded(version)["bytes" if label is None else "pair"]
    assert len(image) == len(JPEG) and made.count(JPEG) == 1
    made = made.replace(JPEG, image)
    if label is None:
        return made
    seven = (7).to_bytes(8, "little")
    assert made[made.rindex(image) :].count(seven) == 1 or made.count(seven) == 1
    at = made.rindex(seven)
    return made[:at] + label.to_bytes(8, "little", signed=True) + made[at + 8 :]


def built(value: bytes | int | list[bytes] | tuple[bytes, int]) -> bytes:
    """A payload of any length in the layout of 11.0.0: built from it with the pyarrow of today, not recorded."""
    import pyarrow as pa  # noqa: PLC0415  not everywhere

    def union(codes: list[int], offsets: list[int], *children: Any) -> Any:
        whole = [pa.nulls(0), *children]
        return pa.UnionArray.from_dense(pa.array(codes, pa.int8()), pa.array(offsets, pa.int32()), whole)

    if isinstance(value, bytes):
        outer = pa.array([value], pa.binary())
    elif isinstance(value, int):
        outer = pa.array([value], pa.int64())
    elif isinstance(value, list):
        inner = union([1] * len(value), list(range(len(value))), pa.array(value, pa.binary()))
        outer = pa.ListArray.from_arrays([0, len(value)], inner)
    else:
        inner = union([1, 2], [0, 0], pa.array(value[:1], pa.binary()), pa.array(value[1:], pa.int64()))
        outer = pa.ListArray.from_arrays([0, 2], inner)
    batch = pa.record_batch([union([1], [0], outer)], names=["list"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(16) + bytes(sink.getvalue())
