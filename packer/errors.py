"""Errors of packer, with the exit codes of the command line. Indentation shows the base class.

    PackerError 1;
      InvalidRequest 2        usage, unknown names, an unsupported or lossy option;
        PackExists 2          the target exists (FileExistsError);
        MissingPackage 2      (ImportError);
        UnsafePath 2          a link, a file or another user's folder where packer writes;
        WrongType 2           (TypeError);
        MixedShapes 2         images of several sizes in one batch;
      BadIndex 2              (IndexError);
      UnknownKey 2            (KeyError);
      BadInput 3              a file of the source is damaged or inconsistent (ValueError);
        DamagedImage 3        bytes that cannot be decoded;
        BadInputs 3           all bad files of one conversion;
      CorruptPack 3           a pack or a part differs from the written one (ValueError);
        CorruptRecord 3       one value of one sample differs from the written one;
        CrashingPart 3        a part that crashes the process that reads the part;
        DamagedObject 3       a file of a pack is damaged in the object store;
      StorageError 4          no space, I/O error (OSError);
        StoreError 4          an object store does not answer, or refuses the request;
          NoObject 4          an object or bucket does not exist;
          ObjectChanged 4     an object has changed since it was listed or opened;
      OutOfMemory 4           not enough memory (MemoryError);
      Locked 5                another process works on the same target (BlockingIOError);
    Interrupted 128 + signal  (KeyboardInterrupt, so that `except Exception` does not catch it)

A message is one line: `where: what failed (sample, field): cause, expected and found; what to do`. `message` contains
file names and texts of packs unchanged. `str(error)` escapes unprintable characters, and cuts the middle out of lines
of more than 4,000 characters.
"""

import signal
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

_UNSEEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")  # controls, bidi marks, surrogates, unassigned, line breaks

DOCS = "docs"  # folder or URL of the documentation, for messages and --help
MOST_CHARACTERS = 4_000  # in a line of an error and in a reason of a manifest


def printable(text: str) -> str:
    """Return the text as one printable line: `shortened`, then `escaped`."""
    return escaped(shortened(text))


def shortened(text: str) -> str:
    """Return the text. If the text has more than 4,000 characters, ` ... ` replaces the middle."""
    half = MOST_CHARACTERS // 2
    return text if len(text) <= MOST_CHARACTERS else f"{text[:half]} ... {text[-half + 5 :]}"


def escaped(text: str) -> str:
    """Return the text with escapes, such as `\\n`, instead of line breaks, controls and other invisible characters."""
    if text.isprintable():
        return text
    return "".join(
        char.encode("unicode_escape").decode() if unicodedata.category(char) in _UNSEEN else char for char in text
    )


class PackerError(Exception):
    """Base class of all errors of packer, except `Interrupted`.

    Attributes:
        exit_code: Exit code of the command line.
        reasons: Details that the message summarizes, one line for each detail.
    """

    exit_code = 1

    def __init__(self, text: str | None = None, /, *, reasons: Sequence[str] = (), message: str | None = None) -> None:
        """Create an error from a message of one line (`text`) or of several lines (`message`).

        Args:
            text: The message, if it is one line.
            reasons: Details, one line for each detail.
            message: The message, if it has several lines. torch's DataLoader sets this argument when it raises an error
                of a worker process again.
        """
        given = text if message is None else message
        super().__init__(*(() if given is None else (given,)))
        self.reasons = tuple(reasons)
        self._has_lines = message is not None

    @property
    def message(self) -> str:
        """The message for programs: file names are not escaped. Print `str(error)` to a terminal instead."""
        return str(self.args[0]) if self.args else self.__class__.__name__

    def __str__(self) -> str:  # KeyError and OSError would print a repr or a tuple
        lines = self.message.split("\n") if self._has_lines else [self.message]
        return "\n".join(map(printable, (*lines, *self.reasons)))


class InvalidRequest(PackerError, ValueError):
    """A request that is invalid, is not supported, or would destroy data."""

    exit_code = 2


class PackExists(InvalidRequest, FileExistsError):
    """A target of a conversion that already exists."""


class MissingPackage(InvalidRequest, ImportError):
    """An optional Python package that is not installed. The message contains the pip command that installs it."""


class UnsafePath(InvalidRequest):
    """A path at which packer refuses to write: a link, or a folder that other users own or may change."""


class WrongType(InvalidRequest, TypeError):
    """An argument of the wrong type."""


class MixedShapes(InvalidRequest):
    """Images of different sizes in one batch. A geometry, such as a resize, makes the sizes equal."""


class BadIndex(PackerError, IndexError):
    """An index for which a dataset or pack does not have a sample."""

    exit_code = 2


class UnknownKey(PackerError, KeyError):
    """A sample key, field, column or split that the pack does not contain."""

    exit_code = 2


class BadInput(PackerError, ValueError):
    """A file of the source that is damaged or contradicts other files of the source."""

    exit_code = 3


class DamagedImage(BadInput):
    """Bytes of an image that cannot be decoded, or an image with more pixels than the limit."""


class BadInputs(BadInput):
    """Samples of one conversion that cannot be packed. `reasons` contains one line for each sample."""


class CorruptPack(PackerError, ValueError):
    """A pack, part or index whose bytes differ from the bytes that packer wrote."""

    exit_code = 3


class CorruptRecord(CorruptPack):
    """One value of one sample whose bytes differ from the bytes that packer wrote."""


class DamagedObject(CorruptPack):
    """A file of a pack that is missing in the object store, has another size there, or is damaged in two downloads."""


class CrashingPart(CorruptPack):
    """A damaged part that crashes the separate processes in which packer reads the part."""


class StorageError(PackerError, OSError):
    """A failure of storage: no space left, a quota, or an error while reading or writing."""

    exit_code = 4


class StoreError(StorageError):
    """An object store that does not answer in time, or refuses the request."""


class NoObject(StoreError):
    """An object or bucket that does not exist in the store."""


class ObjectChanged(StoreError):
    """An object of a store that has changed since the object was listed or opened."""


class OutOfMemory(PackerError, MemoryError):
    """A request that needs more memory than this process may use.

    Python and NumPy may raise a plain MemoryError instead. `except MemoryError` catches both errors, and the command
    line returns exit code 4 for both.
    """

    exit_code = 4


@contextmanager
def naming_memory(where: Callable[[], object]) -> Iterator[None]:
    """Return a `with` block that raises a MemoryError again as OutOfMemory, with a file name in the message.

    Args:
        where: A function that returns the file name. It is called only for an error.
    """
    try:
        yield
    except OutOfMemory as error:
        raise OutOfMemory(f"{where()}: {error.message}") from error
    except MemoryError as error:
        asked = f" ({error})" if str(error) else ""
        raise OutOfMemory(
            f"{where()}: not enough memory to read it{asked}; end other programs, use fewer threads, or raise ulimit -v"
        ) from error


class Locked(PackerError, BlockingIOError):
    """A target that another process has locked."""

    exit_code = 5


class Interrupted(KeyboardInterrupt):
    """A command that SIGINT, SIGTERM or SIGHUP ended. The next run of the same command keeps the finished work."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.exit_code = 128 + signal_number

    def __str__(self) -> str:
        number = int(self.args[0])
        return "interrupted (Ctrl-C)" if number == signal.SIGINT else f"interrupted ({_signal_name(number)})"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
