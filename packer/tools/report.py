"""Results of a tool as text and JSON, with a description of the machine."""

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from packer.files.atomic_save import save
from packer.files.terminal_output import echo, hand_over
from packer.system.parallel import usable_cores

_PACKAGES = ("torch", "numpy", "lmdb", "opencv-python", "simplejpeg", "PyTurboJPEG")


@dataclass(frozen=True)
class ToolReport:
    """The results of one command.

    Attributes:
        text: Lines for the terminal.
        document: All numbers, serializable as JSON.
    """

    text: Sequence[str]
    document: Mapping[str, Any]

    def print(self, *, as_json: bool) -> None:
        """Print the text to stdout. If `as_json` is true, print the JSON document to stdout and the text to stderr."""
        echo(*self.text, err=as_json)
        if as_json:
            hand_over([json.dumps(self._with_machine(), sort_keys=True)])

    def write(self, path: Path) -> None:
        """Write the JSON document to `path`, over an existing file. Raises StorageError, InvalidRequest, UnsafePath."""
        save(path, f"{json.dumps(self._with_machine(), indent=2)}\n".encode())

    def _with_machine(self) -> dict[str, Any]:
        return {"machine": machine(), **self.document}


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a text table. The first column is aligned to the left, all other columns to the right."""
    widths = [max(len(row[at]) for row in (head, *rows)) for at in range(len(head))]
    lines = []
    for row in (head, *rows):
        first, *rest = row
        cells = [first.ljust(widths[0]), *(text.rjust(width) for text, width in zip(rest, widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return lines


# ---- the machine


def machine() -> dict[str, Any]:
    """Return the CPU model, the number of usable cores, and the versions of Python and of important packages."""
    found: dict[str, Any] = {"cpu": _model(), "cores": usable_cores(), "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # simplejpeg is optional
            continue
    return found


def _model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or platform.machine())
