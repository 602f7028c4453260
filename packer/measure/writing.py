"""Writing: figures as JSON and CSV files, for other programs; `-` is standard output."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from packer.files.save import save
from packer.files.terminal import hand_over
from packer.measure.machine import machine


def write_json(path: Path, document: dict[str, Any]) -> None:
    """The document with the machine beside it, replacing the file; raises as files/save.py does."""
    _write(path, json.dumps({"machine": machine(), **document}, indent=2).split("\n"))


def write_csv(path: Path, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """RFC 4180 with Unix line ends, one header line, replacing the file; raises as files/save.py does."""
    _write(path, [_row(row) for row in (head, *rows)])


def _row(values: Sequence[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(values)  # quotes values that hold either
    return text.getvalue().removesuffix("\r\n")


def _write(path: Path, lines: Sequence[str]) -> None:
    """A line may hold line breaks, quoted: those of a name."""
    if str(path) == "-":
        hand_over(lines)
        return
    save(path, "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace"))
