"""Writing: figures as JSON and CSV files, for other programs; `-` is standard output."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from packer.files.terminal import hand_over
from packer.measure.machine import machine
from packer.pack.storage import failing


def write_json(path: Path, document: dict[str, Any]) -> None:
    """The document with the machine beside it, replacing the file; raises StorageFailed."""
    _write(path, json.dumps({"machine": machine(), **document}, indent=2) + "\n")


def write_csv(path: Path, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """RFC 4180 with Unix line ends, one header line, replacing the file; raises StorageFailed."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([head, *rows])
    _write(path, text.getvalue())


def _write(path: Path, text: str) -> None:
    if str(path) == "-":
        hand_over(text.removesuffix("\n").split("\n"))
        return
    with failing(path, "write"):
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
