"""What pyarrow.serialize wrote when it was there: real bytes of three versions, by tests/layouts/payloads/record.py."""

import json
from pathlib import Path

VERSIONS = ("0.10.0", "0.14.1", "11.0.0")
JPEG = b"\xff\xd8\xff\xe0jpeg\xff\xd9"
_FOLDER = Path(__file__).parent.parent / "layouts/payloads"


def recorded(version: str) -> dict[str, bytes]:
    """Payloads by the names of record.py."""
    found = json.loads((_FOLDER / f"pyarrow-{version}.json").read_text())
    return {name: bytes.fromhex(text) for name, text in found.items()}


def of_picture(version: str, picture: bytes, label: int | None = None) -> bytes:
    """A payload like the recorded one, with other bytes in it: of 10 bytes like those that it had."""
    made = recorded(version)["bytes" if label is None else "pair"]
    assert len(picture) == len(JPEG) and made.count(JPEG) == 1
    made = made.replace(JPEG, picture)
    if label is None:
        return made
    seven = (7).to_bytes(8, "little")
    assert made[made.rindex(picture) :].count(seven) == 1 or made.count(seven) == 1
    at = made.rindex(seven)
    return made[:at] + label.to_bytes(8, "little", signed=True) + made[at + 8 :]
