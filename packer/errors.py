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
      BadInput 3              a file of the source is damaged or does not fit (ValueError);
        DamagedImage 3        bytes that cannot be decoded;
        BadInputs 3           all bad files of one conversion;
      CorruptPack 3           a pack or a part differs from the written one (ValueError);
        CorruptRecord 3       one value of one sample differs from the written one;
        CrashingPart 3        reading the part ends the process that reads it;
        DamagedObject 3       a file of a pack is damaged in the object store;
      StorageError 4          no space, I/O error (OSError);
        StoreError 4          an object store does not answer, or refuses the request;
          NoObject 4          an object or bucket does not exist;
          ObjectChanged 4     an object has changed since it was listed or opened;
      OutOfMemory 4           more memory is needed than there is (MemoryError);
      Locked 5                another process works on the same target (BlockingIOError);
    Interrupted 128 + signal  (KeyboardInterrupt, so that `except Exception` does not catch it)

Messages are one line: `where: what failed (sample, field): cause, expected and found; what to do`. They contain
names of files and texts of packs unchanged. `str` of an error, also in tracebacks, makes them printable. It shortens
each line to 4,000 characters, in its middle.
"""

import signal
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

_UNSEEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")  # controls, bidi marks, surrogates, unassigned, line breaks

DOCS = "docs"  # base of the pages that messages and --help name: the address of the site, once it has an address
MOST_CHARACTERS = 4_000  # in a line of an error and in a reason of a manifest


def printable(text: str) -> str:
    """Escape a text to one line; keep only both ends of a text of more than 4,000 characters."""
    return escaped(shortened(text))


def shortened(text: str) -> str:
    """The text, or for one of more than 4,000 characters the two ends with ` ... ` between them."""
    half = MOST_CHARACTERS // 2
    return text if len(text) <= MOST_CHARACTERS else f"{text[:half]} ... {text[-half + 5 :]}"


def escaped(text: str) -> str:
    """The text on one line, characters that cannot be seen as escapes."""
    if text.isprintable():
        return text
    return "".join(
        char.encode("unicode_escape").decode() if unicodedata.category(char) in _UNSEEN else char for char in text
    )


class PackerError(Exception):
    """Base of all errors of packer.

    Attributes:
        exit_code: Exit code of the command line.
        reasons: Details that the message summarizes, one line each.
    """

    exit_code = 1

    def __init__(self, text: str | None = None, /, *, reasons: Sequence[str] = (), message: str | None = None) -> None:
        """Create an error.

        Args:
            text: The message, one line.
            reasons: Details, one line each.
            message: A message of several lines. torch's DataLoader passes the error of a worker by this name
                (`ExceptionWrapper.reraise`).
        """
        given = text if message is None else message
        super().__init__(*(() if given is None else (given,)))
        self.reasons = tuple(reasons)
        self._has_lines = message is not None

    @property
    def message(self) -> str:
        """Message with unescaped names, for programs; not for a terminal."""
        return str(self.args[0]) if self.args else self.__class__.__name__

    def __str__(self) -> str:  # KeyError and OSError would print a repr or a tuple
        lines = self.message.split("\n") if self._has_lines else [self.message]
        return "\n".join(map(printable, (*lines, *self.reasons)))


class InvalidRequest(PackerError, ValueError):
    """The request is invalid, not supported, or would destroy data."""

    exit_code = 2


class PackExists(InvalidRequest, FileExistsError):
    """The target of a conversion exists."""


class MissingPackage(InvalidRequest, ImportError):
    """An optional Python package is not installed; the message holds the command that installs it."""


class UnsafePath(InvalidRequest):
    """A path for packer's own files is a link, or a folder that other users own or may change.

    packer does not change it.
    """


class WrongType(InvalidRequest, TypeError):
    """An argument has the wrong type."""


class MixedShapes(InvalidRequest):
    """Images of one batch differ in size: a geometry, or packing them resized, gives them one."""


class BadIndex(PackerError, IndexError):
    """A sample index outside the pack."""

    exit_code = 2


class UnknownKey(PackerError, KeyError):
    """A sample key, field or column that the pack does not have."""

    exit_code = 2


class BadInput(PackerError, ValueError):
    """A file of the source is damaged or does not fit the others."""

    exit_code = 3


class DamagedImage(BadInput):
    """Bytes that do not decode to the image they announce, or announce one beyond the limits."""


class BadInputs(BadInput):
    """All samples of one conversion that could not be packed, with a reason each."""


class CorruptPack(PackerError, ValueError):
    """A pack, part or index that is not what packer wrote."""

    exit_code = 3


class CorruptRecord(CorruptPack):
    """One value of one sample that is not what packer wrote."""


class DamagedObject(CorruptPack):
    """A file of a pack that is missing or damaged in the object store: it was fetched again in vain."""


class CrashingPart(CorruptPack):
    """A part so damaged that reading it ended a process of its own by a signal, or used up many."""


class StorageError(PackerError, OSError):
    """No space left, a quota, or an I/O error while writing or reading."""

    exit_code = 4


class StoreError(StorageError):
    """An object store does not answer in time, or refuses the request."""


class NoObject(StoreError):
    """An object or bucket does not exist in the store."""


class ObjectChanged(StoreError):
    """An object of a store has changed since it was listed or opened."""


class OutOfMemory(PackerError, MemoryError):
    """The request needs more memory than this process may use; the message contains the size if it is known.

    Python and NumPy may also raise a plain MemoryError. `except MemoryError` catches both, and the command line returns
    the same exit code.
    """

    exit_code = 4


@contextmanager
def naming_memory(where: Callable[[], object]) -> Iterator[None]:
    """Raise OutOfMemory with the name of what was read for each MemoryError of the block.

    Args:
        where: Returns the name: a path, or a path with the place in it.
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
    """Another process works on the same target."""

    exit_code = 5


class Interrupted(KeyboardInterrupt):
    """SIGINT, SIGTERM or SIGHUP arrived; what was finished is kept for the next run of the same command."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.exit_code = 128 + signal_number

    def __str__(self) -> str:
        number = int(self.args[0])
        return "interrupted (Ctrl-C)" if number == signal.SIGINT else f"interrupted ({_signal_name(number)})"


def _signal_name(number: int) -> str:
    """SIGTERM; a number without a name as it is."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
