"""The command line: one command per file of this folder. A command is imported when it is called.

Exit codes:

* 0: success
* 1: unexpected error
* 2: wrong usage, or refused input
* 3: damaged data
* 4: no space, no memory, or I/O error
* 5: locked by another process
* 128 + n: interrupted by signal n
"""

import contextlib
import errno
import gc
import re
import signal
import sys
import textwrap
import traceback
from types import FrameType

import click

from packer import __version__
from packer.cli._shared_options import Group
from packer.errors import DOCS, Interrupted, OutOfMemory, PackerError, StorageError, printable
from packer.files.terminal_output import echo
from packer.registry import Registry

# of torch, of Python's threads, and of the dynamic linker
_NO_MEMORY = ("can't allocate memory", "can't start new thread", "failed to map segment from shared object")
_CV_NO_MEMORY = -4  # cv2.Error.StsNoMem
_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ESTALE)

# what other programs call an option of ours: named where a command has the second and not the first
_MEANT = {
    "--format": "--to",
    "--workers": "--threads",
    "--num-workers": "--workers",
    "--threads": "--workers",
    "--jobs": "--threads",
    "--size": "--resize",
    "--force": "--overwrite",
    "--batch": "--batch-size",
    "--out": "--output",
}

registry = Registry(__name__, __path__[0], "command")


class Main(click.Group):
    """Lists the commands of this folder, and imports a command when it is called."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands for `packer --help`, in the groups of `Group`."""
        places = {name: getattr(registry.load(name), "PLACE", None) for name in registry.names()}
        width = max(map(len, places))
        for group in (*Group, None):
            names = [name for name, place in places.items() if (place[0] if place else None) is group]
            names.sort(key=lambda name: (places[name] or (group, 0))[1])
            commands = [(name, registry.load(name).command) for name in names]
            rows = [(name.ljust(width), command.get_short_help_str(limit=80)) for name, command in commands]
            if rows:
                with formatter.section(group.value if group else "Other commands"):
                    formatter.write_dl(rows)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(registry.names())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in registry:
            return None
        command: click.Command = registry.load(cmd_name).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that `args` name. The error for an unknown name suggests the most similar command."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib  # only an error needs it

            close = difflib.get_close_matches(args[0], registry.names(), n=1)
            hint = f"Did you mean {close[0]!r}?" if close else f"There are: {', '.join(registry.names())}."
            raise click.UsageError(f"{error.format_message()} {hint}", ctx) from error


@click.command(
    cls=Main,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="packer COMMAND --help has the options of a command, and an example. Which one for which data: "
    f"{DOCS}/which-command.md. Completion in a shell: {DOCS}/commands.md.",
)
@click.version_option(__version__, prog_name="packer")
def main() -> None:
    """Pack an image dataset once, and feed PyTorch models faster."""


def run() -> None:
    """Run the command line, and exit. An error of packer is printed as one message, and sets the exit code."""
    signals = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    for number in signals:
        signal.signal(number, _interrupt)
    try:
        code = _code()
    except Interrupted as late:  # while an error was printed
        code = late.exit_code
    for number in signals:
        signal.signal(number, signal.SIG_DFL)  # a later signal ends the process without a traceback
    gc.freeze()  # no search for reference cycles at the end, a tenth of the time of a small command
    sys.exit(code)


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)  # a second one ends the process at once
    raise Interrupted(number)


def _code() -> int:
    try:
        main.main(prog_name="packer", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        echo(_usage(error), err=True)
        return error.exit_code
    except PackerError as error:
        import shutil  # slow import

        text = f"packer: {error}"
        _tell(_for_terminal(text, shutil.get_terminal_size().columns) if sys.stderr.isatty() else text)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt) as error:  # click turns an interrupt into Abort
        return _stopped(_interrupt_behind(error))
    except BrokenPipeError:
        _drop_output()
        return 141
    except Exception as error:  # noqa: BLE001  the one place where everything ends: show all of it, with its class
        interrupt = _interrupt_behind(error)
        return _unforeseen(error) if interrupt is None else _stopped(interrupt)
    return 0


def _interrupt_behind(error: BaseException | None) -> Interrupted | None:
    """Return the interrupt that caused an error, or None. For example, it left a file half written."""
    while error is not None and not isinstance(error, Interrupted):
        error = error.__cause__ or error.__context__  # click 8.1 raises Abort without a cause
    return error


def _stopped(interrupt: Interrupted | None) -> int:
    echo(f"packer: {interrupt or 'interrupted'}; the same command continues", err=True)
    return 130 if interrupt is None else interrupt.exit_code


def _usage(error: click.ClickException) -> str:
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    where = ctx.command_path if ctx is not None else "packer"
    if isinstance(error, click.NoSuchOption) and ctx is not None:
        there = {option for parameter in ctx.command.params for option in parameter.opts}
        if (meant := _MEANT.get(error.option_name)) in there and meant is not None:
            error = click.UsageError(f"No such option {error.option_name!r}. Did you mean {meant!r}?", ctx)
    error.message = printable(error.message)  # type: ignore[misc]  # quotes the user's words; click adds its lines
    text = re.sub(r"\s*\n\s*", " ", error.format_message()).removesuffix(".")
    return f"{where}: {text}{' ' if text.endswith('?') else '; '}{where} --help shows how"


def _for_terminal(text: str, width: int) -> str:
    """Return an error message in lines of at most `width` columns. Text after the last "; " becomes a hint line."""
    error, separator, advice = text.rpartition("; ")
    parts = [error, f"hint: {advice}"] if separator else [text]
    lines = [line for part in parts for line in part.split("\n")]
    return "\n".join(
        textwrap.fill(line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        for line in lines
    )


def _unforeseen(error: Exception) -> int:
    """Print a message if memory or a disk fails, otherwise the traceback of the error. Return the exit code."""
    if _is_of_memory(error):
        return _out_of_memory(str(error))
    if isinstance(error, OSError) and error.errno in _OF_THE_DISK:  # of the output too, which may be a full disk
        where = error.filename or "the output"
        echo(f"packer: {where}: {error.strerror}; see its disk, then run the same command again", err=True)
        _drop_output()
        return StorageError.exit_code
    _tell("".join(traceback.format_exception(error)))
    echo("packer: unexpected error, please report it with the lines above", err=True)
    return 1


def _is_of_memory(error: Exception) -> bool:
    """Return True if an error means that memory is exhausted. Torch, OpenCV and threads have errors of their own."""
    if isinstance(error, (OSError, MemoryError)):
        return isinstance(error, MemoryError) or error.errno == errno.ENOMEM
    found = isinstance(error, (RuntimeError, ImportError)) and any(text in str(error) for text in _NO_MEMORY)
    return found or (type(error).__module__ == "cv2" and getattr(error, "code", None) == _CV_NO_MEMORY)


def _out_of_memory(asked: str) -> int:
    said = f": {' '.join(asked.split())}" if asked else ""
    echo(f"packer: not enough memory{said}; end other programs, use fewer threads, or raise ulimit -v", err=True)
    return OutOfMemory.exit_code


def _tell(text: str) -> None:
    echo(*text.removesuffix("\n").expandtabs(4).split("\n"), err=True)


def _drop_output() -> None:
    """Close stdout after a failed write. Otherwise, the interpreter flushes it at exit and changes the exit code."""
    with contextlib.suppress(OSError):
        sys.stdout.close()
