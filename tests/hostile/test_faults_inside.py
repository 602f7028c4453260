"""The same faults without strace: at every call of Python's that writes, where the system forbids to trace.

What libraries write in C is met at their doors: opening an LMDB or HDF5 file and beginning a transaction may fail.
"""

import errno
import io
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import lmdb
import pytest

from packer import formats
from packer.files import folder_handle
from tests.support import fault_injection
from tests.support.command_runs import SCENES, check_end, load_everything

_CALLS = ("mkdir", "rmdir", "unlink", "rename", "replace", "fsync", "write", "pwrite", "truncate", "ftruncate")
_KILL = "signal=KILL"
_FAULTS = (_KILL, "error=ENOSPC", "error=EIO")


class Faults:
    """Counts the calls of this process, and lets one of them fail. The count lies in a file, for whoever asks later."""

    def __init__(self, number: int, what: str, count: Path) -> None:
        """number: of the call that fails, from 1; 0 for none."""
        self._number = number
        self._what = what
        self._count = 0
        self._descriptor = os.open(count, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self._pwrite = os.pwrite

    def meet(self) -> None:
        """One more call: it is made, or fails, or never comes."""
        self._count += 1
        self._pwrite(self._descriptor, b"%d" % self._count, 0)
        if self._count == self._number:
            if self._what == _KILL:
                os.kill(os.getpid(), signal.SIGKILL)
            code = getattr(errno, self._what.removeprefix("error="))
            raise OSError(code, os.strerror(code))

    def install(self) -> None:
        """In the place of the functions that write."""
        fault_injection.in_one_thread()
        for name in _CALLS:
            setattr(os, name, self._before(getattr(os, name)))
        self._install_opening()
        self._install_libraries()
        rename = folder_handle._renameat2()

        def renameat2(*arguments: Any) -> int:
            try:
                self.meet()
            except OSError as error:
                folder_handle.ctypes.set_errno(error.errno or 0)
                return -1
            assert rename is not None
            return int(rename(*arguments))

        folder_handle._renameat2 = lambda: renameat2  # type: ignore[assignment]

    def _before(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if function.__name__ != "write" or arguments[0] > 2:  # not to the terminal
                self.meet()
            return function(*arguments, **named)

        return call

    def _install_opening(self) -> None:
        open_descriptor, open_file, meet = os.open, io.open, self.meet

        class File(io.FileIO):
            def write(self, data: Any) -> int:
                meet()
                return super().write(data) or 0

        def opened(path: Any, flags: int, *more: Any, **named: Any) -> int:
            if flags & os.O_CREAT or flags & os.O_TMPFILE == os.O_TMPFILE:  # the latter has the bit of O_DIRECTORY
                meet()
            return open_descriptor(path, flags, *more, **named)

        def opened_file(path: Any, mode: str = "r", buffering: int = -1, *more: Any, **named: Any) -> Any:
            if "b" not in mode or not set(mode) & set("wax+") or "opener" in named:
                return open_file(path, mode, buffering, *more, **named)  # an opener comes back through os.open
            if not isinstance(path, int):
                meet()
            file = File(path, mode.replace("b", ""))
            return io.BufferedWriter(file) if buffering and "+" not in mode else file

        os.open = opened
        io.open = opened_file
        os.fdopen = opened_file

    def _install_libraries(self) -> None:
        real_lmdb, real_h5py = lmdb.open, h5py.File

        def open_lmdb(path: str, **options: Any) -> Any:
            if options.get("readonly"):
                return real_lmdb(path, **options)
            self.meet_as_lmdb()
            return _Environment(real_lmdb(path, **options), self)

        def open_h5py(path: Any, mode: str, **options: Any) -> Any:
            if mode != "r":
                self.meet()
            return real_h5py(path, mode, **options)

        lmdb.open = open_lmdb
        h5py.File = open_h5py

    def meet_as_lmdb(self) -> None:
        """The same, with the error that py-lmdb raises."""
        try:
            self.meet()
        except OSError as error:
            raise lmdb.DiskError(f"mdb: {error.strerror}") from error


class _Environment:
    """One of LMDB whose transactions may fail."""

    def __init__(self, real: Any, faults: Faults) -> None:
        self._real = real
        self._faults = faults

    def begin(self, **options: Any) -> Any:
        self._faults.meet_as_lmdb()
        return self._real.begin(**options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def sweep(folder: Path, format: str, name: str, *, points: int | None = None) -> Counter[str]:
    """Every call of one command, or some points of it with the faults in turn; counts what came of it."""
    load_everything()
    scene = SCENES[name](folder, format)
    scene.begin()
    count = folder / "count"
    assert fault_injection.run(scene.words, folder, prepare=lambda: Faults(0, "", count).install()).code == 0
    assert scene.state() == "complete"
    found, total = Counter[str](), int(count.read_text())
    for number in range(1, total + 1, total // points if points else 1):
        for what in _FAULTS if points is None else [_FAULTS[found.total() % len(_FAULTS)]]:
            scene.begin()
            faults = Faults(number, what, count)
            ended = fault_injection.run(scene.words, folder, prepare=faults.install)
            os.close(faults._descriptor)
            found[check_end(scene, ended, what)] += 1
            scene.finish()
    return found


@pytest.mark.one_in(11)
@pytest.mark.parametrize("format", formats.names())
def test_a_fault_at_some_calls(tmp_path: Path, format: str) -> None:
    found = sweep(tmp_path, format, "convert", points=3)
    assert found.total() >= 3


@pytest.mark.full
@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("format", formats.names())
def test_a_fault_at_every_call(tmp_path: Path, format: str, name: str) -> None:
    found = sweep(tmp_path, format, name)
    print(f"\n{format} {name}: {found.total()} faults: {dict(sorted(found.items()))}")  # noqa: T201  the figure
    assert found.total() >= 30
