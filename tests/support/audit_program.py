"""A program: does everything that one can do with a pack, to many packs, and tells what Python saw happen meanwhile.

Usage: audited.py NUMBER_OF_WARM_UPS PACK_FOLDER ...; each folder holds `pack`; a line of JSON per operation on stdout.
The first folders are sound packs: after them everything is imported, and from then on events are looked at.
"""

import json
import os
import resource
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from packer.conversion.convert import convert_source  # noqa: E402
from packer.conversion.options import ConversionOptions  # noqa: E402
from packer.conversion.source_spec import SourceSpec  # noqa: E402
from packer.conversion.source_verification import Comparison  # noqa: E402
from packer.datasets.pack_dataset import PackDataset  # noqa: E402
from packer.errors import PackerError  # noqa: E402
from packer.inspect.contact_sheet import SheetRequest, make_sheet  # noqa: E402
from packer.inspect.extraction import extract  # noqa: E402
from packer.inspect.html_sheet import draw_html  # noqa: E402
from packer.inspect.png_sheet import draw_png  # noqa: E402
from packer.inspect.statistics_report import lines  # noqa: E402
from packer.inspect.statistics_scan import StatisticsScan  # noqa: E402
from packer.pack import manifest as manifests  # noqa: E402
from packer.pack.index_rebuild import reindex  # noqa: E402
from packer.pack.verification import problems  # noqa: E402
from tests.support import built_packs  # noqa: E402

MOST_BYTES = 12 << 30  # of address space; torch alone reserves some
ALWAYS = (
    *("pickle.find_class", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork"),
    *("os.forkpty", "pty.spawn", "os.startfile", "webbrowser.open", "code.__new__", "os.chmod", "os.chown", "os.link"),
    *("os.symlink", "os.setxattr", "os.putenv", "os.kill", "signal.pthread_kill", "cpython.run_command"),
)
PREFIXES = ("socket.", "urllib.", "http.", "ftplib.", "smtplib.", "winreg.", "sqlite3.", "ctypes.call", "imaplib.")
CODE = tuple({sys.prefix, sys.base_prefix, str(ROOT)})  # where code may come from
CHANGES = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.truncate", "os.utime", "shutil.rmtree")


class Watch:
    """The audit hook; `events` are those that must not be."""

    def __init__(self) -> None:
        self.ready = False
        self.armed = False
        self.events: list[str] = []
        self.place = Path()

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if self.armed and self.is_forbidden(event, args):
            self.events.append(f"{event} {args!r:.200}")

    def is_forbidden(self, event: str, args: tuple[Any, ...]) -> bool:
        """Whether no reader of a pack may do that."""
        if event in ALWAYS or event.startswith(PREFIXES):
            return True
        if event == "open":
            return not self._may_open(args[0], args[1], args[2])
        if event in CHANGES:
            return not all(self._is_inside(path) for path in args if isinstance(path, (str, bytes)))
        if event == "ctypes.dlopen":
            return args[0] is not None
        if event == "import":
            return args[1] is not None and not str(args[1]).startswith(CODE)
        if event in ("exec", "compile"):
            name = args[0].co_filename if event == "exec" else args[1]
            return not _text(name).startswith((*CODE, "<frozen"))
        return False

    def _may_open(self, path: Any, mode: Any, flags: Any) -> bool:
        if isinstance(path, int):
            return True
        writes = (flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC) or set(mode or "") & set("wax+")
        if writes:
            return self._is_inside(path)
        text = _text(path)
        folders = (*CODE, str(self.place / "pack"), str(self.place / "elsewhere"), "/proc/", "/sys/fs/cgroup/")
        return self._is_inside(path) or text == str(self.place / "work") or text.startswith(folders)

    def _is_inside(self, path: str | bytes) -> bool:
        """Whether it is a name below the place of work: absolute, or of a folder that is already open."""
        text = _text(path)
        if text.startswith("/proc/self/fd/"):  # a path through the descriptor of a work folder
            text = os.path.realpath(text)
        if "/" not in text:
            return text not in ("", ".", "..")
        return ".." not in text.split("/") and text.startswith(str(self.place / "work") + "/")


def _text(path: Any) -> str:
    return os.fsdecode(path) if isinstance(path, (str, bytes, os.PathLike)) else repr(path)


def _read(pack: Path, work: Path) -> Any:
    return [{name: value.hex() for name, value in record.items()} for record in built_packs.values(pack)]


def _read_hashed(pack: Path, work: Path) -> Any:
    return len(built_packs.values(pack, verify="open"))


def _samples(pack: Path, work: Path) -> None:
    names = manifests.read(pack).schema.names
    dataset = PackDataset(pack, names, output="numpy", verify="never")
    try:
        for index in range(len(dataset)):
            for name in names:
                try:
                    PackDataset(pack, [name], output="numpy")[index]
                    dataset.key(index)
                except PackerError:
                    continue
    finally:
        del dataset


def _convert(pack: Path, work: Path) -> None:
    source, _ = SourceSpec("pack").open(pack)
    convert_source(source, work / "copy.pack", ConversionOptions(on_error="skip"), threads=2)


def _compare(pack: Path, work: Path) -> None:
    (work / "empty").mkdir()
    list(Comparison(pack, work / "empty").problems())


def _index(pack: Path, work: Path) -> None:
    copy = work / "copied"
    copy.mkdir()
    for path in pack.rglob("*"):
        target = copy / path.relative_to(pack)
        if path.is_dir():
            target.mkdir(exist_ok=True)
        elif path.is_file() and path.stat().st_size < 1 << 24:
            target.write_bytes(path.read_bytes())
    reindex(copy)


def _view(pack: Path, work: Path) -> Any:
    sheet = make_sheet(pack, SheetRequest(zoom=True), threads=2)
    return len(draw_png(sheet)), len(draw_html(sheet))


OPERATIONS: dict[str, Callable[[Path, Path], Any]] = {
    "read": _read,
    "read hashed": _read_hashed,
    "samples": _samples,
    "verify": lambda pack, work: len(list(problems(pack, level="full"))),
    "verify quickly": lambda pack, work: len(list(problems(pack, level="quick"))),
    "extract": lambda pack, work: vars(extract(pack, work / "tree")),
    "extract what is sound": lambda pack, work: vars(extract(pack, work / "some", skip_bad=True)),
    "check index": lambda pack, work: reindex(pack, check=True),
    "index": _index,
    "convert": _convert,
    "compare": _compare,
    "view": _view,
    "stats": lambda pack, work: list(lines(StatisticsScan(pack, threads=2).result)),
}


def attempt(operation: Callable[[Path, Path], Any], place: Path, watch: Watch) -> dict[str, Any]:
    """How one operation ends, and which events it should not have raised."""
    watch.place, watch.events = place, []
    watch.armed = watch.ready
    found: dict[str, Any]
    try:
        found = {"end": "value", "value": operation(place / "pack", place / "work")}
    except PackerError as error:
        found = {"end": type(error).__name__, "message": str(error)[:300]}
    except BaseException as error:  # noqa: BLE001  whatever happens is the finding
        found = {"end": "crash", "message": f"{type(error).__name__}: {error}"[:300] + traceback.format_exc()[-1500:]}
    finally:
        watch.armed = False
    return {**found, "events": watch.events}


def say(line: str) -> None:
    """A line for the one that started this."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def state(place: Path) -> list[tuple[str, int, int]]:
    """Everything that must stay as it is: the pack, and what lies beside it, but for the place of work."""
    found = []
    for folder, folders, names in os.walk(place):
        folders[:] = sorted(name for name in folders if Path(folder) != place or name != "work")
        for name in (*folders, *sorted(names)):
            status = os.lstat(os.path.join(folder, name))
            found.append((os.path.join(folder, name), status.st_size, status.st_mtime_ns))
    return found


def examine(place: Path, watch: Watch, operations: Mapping[str, Callable[[Path, Path], Any]] = OPERATIONS) -> None:
    """All operations on one pack, a line each; a line before each tells which one it was, should it be the last."""
    (place / "work").mkdir()
    tempfile.tempdir = str(place / "work")
    os.chdir(place / "pack" if (place / "pack").is_dir() else place)  # whoever imports from here would show
    before = state(place)
    for name, operation in operations.items():
        say(json.dumps({"place": place.name, "operation": name}))
        found = attempt(operation, place, watch)
        if state(place) != before:
            found["events"].append(f"changed: {set(state(place)) ^ set(before)}")
        say(json.dumps({"place": place.name, "operation": name, **found}, default=repr))


def main() -> None:
    """See the module."""
    warnings.simplefilter("error")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    watch = Watch()
    sys.addaudithook(watch)
    for number, place in enumerate(sys.argv[2:]):
        watch.ready = number >= int(sys.argv[1])
        examine(Path(place), watch)


if __name__ == "__main__":
    main()
