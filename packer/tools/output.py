"""Output: a tool's figures as a table for the terminal, and as JSON and CSV for other programs."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packer.files.atomic_save import save
from packer.files.terminal_output import hand_over
from packer.system.machine_description import machine


@dataclass(frozen=True)
class Figures:
    """What a command has measured: all of it, and as a table, a row per run, where the command has one."""

    document: dict[str, Any]
    csv_head: Sequence[str] = ()
    csv_rows: Sequence[Sequence[Any]] = ()

    def hand_over(self, *, as_json: bool, as_csv: bool = False) -> None:
        """To standard output: one line of JSON, or the table."""
        if as_json:
            hand_over([json.dumps(self._whole(), sort_keys=True)])
        if as_csv:
            hand_over(self._table())

    def write(self, path: Path) -> None:
        """Into a file, replacing it, in the form that its suffix says; raises as `files.work_folder.save` does."""
        is_table = path.suffix.lower() == ".csv"
        lines = self._table() if is_table else json.dumps(self._whole(), indent=2).split("\n")
        save(path, "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace"))

    def _whole(self) -> dict[str, Any]:
        return {"machine": machine(), **self.document}

    def _table(self) -> list[str]:
        """RFC 4180 with Unix line ends, one header line; a line may hold line breaks, quoted: those of a name."""
        return [_row(row) for row in (self.csv_head, *self.csv_rows)]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table for the terminal: the first column to the left, the others to the right."""
    widths = [max(len(row[at]) for row in (head, *rows)) for at in range(len(head))]
    lines = []
    for row in (head, *rows):
        first, *rest = row
        cells = [first.ljust(widths[0]), *(text.rjust(width) for text, width in zip(rest, widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return lines


def _row(values: Sequence[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(values)  # quotes values that hold either
    return text.getvalue().removesuffix("\r\n")
