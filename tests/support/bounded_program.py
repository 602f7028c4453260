"""A program: does with packs what commands and users do, each in a fork whose memory and CPU time the kernel bounds.

Usage: bounded.py PACK_FOLDER ...; each folder holds `pack`; a line of JSON per operation on stdout: how it ended.
All is imported first, torch too. Then a fork for each operation sets RLIMIT_AS to its own VmSize and 512 MiB more, and
RLIMIT_CPU to 5 s, which count from the fork: what is bounded is what the operation itself needs.
"""

import contextlib
import gc
import json
import os
import resource
import shutil
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

import click  # noqa: E402

import packer  # noqa: E402
from packer import cli, codecs, formats, sources  # noqa: E402
from packer.errors import PackerError  # noqa: E402
from packer.loading import Loader  # noqa: E402

MOST_BYTES = 512 << 20
MOST_SECONDS = 5
for _registry in (cli.registry, codecs, formats, sources):
    for _name in _registry.names():
        _registry.load(_name)
import packer.conversion.convert  # noqa: E402
import packer.copies.stager  # noqa: E402
import packer.images.backends.opencv  # noqa: E402
import packer.inspect.contact_sheet  # noqa: E402
import packer.inspect.extraction  # noqa: E402
import packer.inspect.html_sheet  # noqa: E402
import packer.inspect.png_sheet  # noqa: E402
import packer.inspect.statistics_report  # noqa: E402
import packer.inspect.statistics_scan  # noqa: E402,F401
import packer.inspect.verify  # noqa: E402
import packer.pack.index_rebuild  # noqa: E402
import packer.system.buffer_stacking  # noqa: E402


def commanded(*words: str) -> Callable[[Path, Path], int]:
    """The exit code of a command; {pack} and {work} stand for the folders."""

    def run(pack: Path, work: Path) -> int:
        sys.argv = ["packer", *(word.format(pack=pack, work=work) for word in words)]
        return cli._code()

    return run


def used(function: Callable[[Path], object]) -> Callable[[Path, Path], int]:
    """The exit code that a user's call has, were it a command."""

    def run(pack: Path, work: Path) -> int:
        try:
            function(pack)
        except PackerError as error:
            click.echo(f"{type(error).__name__}: {error}", err=True)
            return error.exit_code
        except MemoryError as error:
            click.echo(f"{type(error).__name__}: {error}", err=True)
            return 4
        except Exception:  # noqa: BLE001  whatever happens is the finding
            traceback.print_exc()
            return 1
        return 0

    return run


def sample(pack: Path) -> None:
    dataset = packer.open(pack)
    for index in range(min(len(dataset), 3)):
        dataset[index]


def sample_of_arrays(pack: Path) -> None:
    dataset = packer.open(pack, output="numpy", verify="open")
    for index in range(min(len(dataset), 3)):
        dataset[index]


def batches(pack: Path) -> None:
    with contextlib.closing(iter(Loader(packer.open(pack), batch_size=2, threads=2))) as found:
        for _ in found:
            pass


OPERATIONS: dict[str, Callable[[Path, Path], int]] = {
    "info": commanded("info", "{pack}"),
    "info --json": commanded("info", "{pack}", "--json"),
    "info --keys": commanded("info", "{pack}", "--keys"),
    "verify --level quick": commanded("verify", "{pack}", "--level", "quick"),
    "verify": commanded("verify", "{pack}"),
    "verify --level full": commanded("verify", "{pack}", "--level", "full"),
    "verify --expect": commanded("verify", "{pack}", "--level", "quick", "--expect", "sha256:" + 64 * "0"),
    "verify --source": commanded("verify", "{pack}", "--source", "{work}"),
    "extract": commanded("extract", "{pack}", "{work}/tree"),
    "extract --skip-bad": commanded("extract", "{pack}", "{work}/some", "--skip-bad"),
    "index --check": commanded("index", "{pack}", "--check"),
    "convert": commanded("convert", "{pack}", "{work}/copy.pack", "--on-error", "skip"),
    "view": commanded("view", "{pack}", "-o", "{work}/sheet.png"),
    "stats": commanded("stats", "{pack}", "--threads", "2"),
    "stage": commanded("stage", "{pack}", "--to", "{work}"),
    "sample": used(sample),
    "sample of arrays": used(sample_of_arrays),
    "batches": used(batches),
    "index": commanded("index", "{pack}"),  # the last one, for it makes a damaged index whole
}


def address_space() -> int:
    """VmSize of this process."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def attempt(name: str, place: Path) -> int:
    """The wait status of a fork that does it; what it prints goes to `place`/said."""
    work = place / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads that a library began
        pid = os.fork()
    if pid == 0:
        try:
            said = os.open(place / "said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(said, 1)
            os.dup2(said, 2)
            for kind, limit in (
                (resource.RLIMIT_CORE, 0),
                (resource.RLIMIT_AS, address_space() + MOST_BYTES),
                (resource.RLIMIT_CPU, MOST_SECONDS),
            ):
                resource.setrlimit(kind, (limit, limit))
            code = OPERATIONS[name](place / "pack", work)
            sys.stdout.flush()
            sys.stderr.flush()
        except BaseException:  # noqa: BLE001  whatever happens is the finding
            traceback.print_exc()
            sys.stderr.flush()
            code = 1
        os._exit(code)
    return os.waitpid(pid, 0)[1]


def main() -> None:
    """See the module."""
    del sys.modules["__main__"].__file__  # a process that reads damaged parts is not to import all this again
    for place in map(Path, sys.argv[1:]):
        for name in OPERATIONS:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            status = attempt(name, place)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            said = (place / "said").read_bytes().decode("utf-8", "replace") if (place / "said").exists() else ""
            found = {
                "place": place.name,
                "operation": name,
                "signal": signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else None,
                "code": os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
                "seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
                "said": said[-2000:],
                "length": len(said),
            }
            sys.stdout.write(json.dumps(found) + "\n")
            sys.stdout.flush()
        shutil.rmtree(place / "work", ignore_errors=True)


if __name__ == "__main__":
    main()
