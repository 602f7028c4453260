"""Audit events: what Python says that a parser did while a test watched."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_FORBIDDEN = ("pickle", "os.system", "os.exec", "subprocess", "exec", "socket", "ctypes.dlopen")
_CODE = (sys.prefix, sys.base_prefix, str(Path(__file__).resolve().parents[2]), "<frozen")  # imported late


@contextmanager
def watched() -> Iterator[list[str]]:
    """The events that no parser may cause, while the block runs."""
    events: list[str] = []
    watching = True

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if not watching or not event.startswith(_FORBIDDEN):
            return
        if event == "exec" and getattr(arguments[0], "co_filename", "").startswith(_CODE):
            return
        events.append(f"{event} {arguments!r:.200}")

    sys.addaudithook(audit)  # stays for ever
    try:
        yield events
    finally:
        watching = False
