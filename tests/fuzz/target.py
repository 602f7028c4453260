"""Target: one parser with the inputs to start from, and what it makes of an input."""

import hashlib
import resource
import signal
import sys
import traceback
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import FrameType

import packer
from packer.errors import OutOfMemory, PackerError

TARGETS = Path(__file__).parent / "targets"
CORPUS = Path(__file__).parent / "corpus"

MOST_CPU_SECONDS = 5
MOST_MORE_BYTES = 512 << 20  # beyond what the process has when it starts to fuzz
_MOST_BYTES = 8192
_PACKER = f"{Path(packer.__file__).parent}/"


class Disagreement(AssertionError):
    """The parser and what it is compared with read different things."""


class _Slow(BaseException):
    """The input takes more processor time than any may; nobody catches this."""


@dataclass(frozen=True)
class Target:
    """See the package."""

    name: str
    check: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]
    tokens: tuple[bytes, ...]
    most_bytes: int

    @property
    def kept(self) -> list[Path]:
        """The inputs of the committed corpus."""
        return sorted(path for path in (CORPUS / self.name).glob("*") if path.is_file())

    def inputs(self) -> Iterator[bytes]:
        """The seeds, then the committed corpus."""
        yield from self.seeds()
        yield from (path.read_bytes() for path in self.kept)


@dataclass(frozen=True)
class Finding:
    """What an input did that none may. kind: exception, disagreement, time, memory or end (of the process)."""

    target: str
    kind: str
    data: bytes
    where: str
    report: str

    @property
    def signature(self) -> tuple[str, str]:
        """What findings with one cause have in common, most often."""
        return self.kind, self.where

    def save(self, folder: Path) -> Path:
        """The input, and beside it the report with the command that shows it again."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.kind}-{name_of(self.data)}"
        path.write_bytes(self.data)
        command = f"scripts/fuzz {self.target} --input {path}"
        path.with_suffix(".txt").write_text(f"{command}\n\n{self.where}\n\n{self.report}\n", encoding="utf-8")
        return path


def names() -> list[str]:
    """Every target."""
    return sorted(path.stem for path in TARGETS.glob("*.py") if path.stem != "__init__")


def load(name: str) -> Target:
    """The target of that name."""
    module = import_module(f"tests.fuzz.targets.{name}")
    tokens, most_bytes = getattr(module, "TOKENS", ()), getattr(module, "MOST_BYTES", _MOST_BYTES)
    return Target(name, module.check, module.seeds, tokens, most_bytes)


def name_of(data: bytes) -> str:
    """The name of an input's file, as libFuzzer has it."""
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()


def judge(target: Target, data: bytes) -> Finding | None:
    """The finding that an input is; None where the parser keeps its contract."""
    try:
        with _bounded():
            target.check(data)
    except OutOfMemory as error:
        return _finding(target, data, "memory", error)
    except PackerError as error:
        return None if _can_be_shown(error) else _finding(target, data, "exception", error)
    except MemoryError as error:
        return _finding(target, data, "memory", error)
    except _Slow as error:
        return _finding(target, data, "time", error)
    except Disagreement as error:
        return _finding(target, data, "disagreement", error)
    except Exception as error:  # noqa: BLE001  every other one is what is looked for
        return _finding(target, data, "exception", error)
    return None


@contextmanager
def refusable() -> Iterator[None]:
    """A refusal ends the block alone, so that a check goes on with what else it does with an input."""
    try:
        yield
    except PackerError as error:
        if isinstance(error, OutOfMemory) or not _can_be_shown(error):
            raise


def _can_be_shown(error: PackerError) -> bool:
    """Whether a terminal shows the message as one line; the spaces of names are shown, of any width."""
    text = str(error)
    return bool(error.reasons) or all(char.isprintable() or unicodedata.category(char) == "Zs" for char in text)


@contextmanager
def _bounded() -> Iterator[None]:
    """Raise _Slow in the block when it takes too much processor time."""
    before = signal.signal(signal.SIGPROF, _stop)
    signal.setitimer(signal.ITIMER_PROF, MOST_CPU_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _stop(_: int, frame: FrameType | None) -> None:
    raise _Slow(f"more than {MOST_CPU_SECONDS} s of processor time")


def _finding(target: Target, data: bytes, kind: str, error: BaseException) -> Finding:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(_PACKER)] or frames
    place = f"{Path(ours[-1].filename).name}:{ours[-1].name}" if ours else "?"
    report = "".join(traceback.format_exception(error))
    # where a slow input is interrupted is chance
    where = target.name if kind == "time" else f"{type(error).__name__} in {place}"
    return Finding(target.name, kind, data, where, report[-20_000:])


def limit_memory() -> int:
    """Give the process no more than it has and MOST_MORE_BYTES; returns the MiB that may be resident."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    sizes = {line.partition(":")[0]: int(line.split()[1]) << 10 for line in status.splitlines() if line.endswith(" kB")}
    most = sizes["VmSize"] + MOST_MORE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.setrecursionlimit(1000)
    return (sizes["VmHWM"] + MOST_MORE_BYTES) >> 20
