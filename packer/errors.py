"""Every error that packer raises on purpose, with the exit code of the command that meets it.

    PackerError 1
      InvalidRequest 2        usage, unknown names, a target that exists, an unsupported or lossy wish
        PackExists 2          (FileExistsError)
        MissingPackage 2      (ImportError)
        UnsafePath 2          a link, a file or another's folder in the place of packer's own
        WrongType 2           (TypeError)
        MixedShapes 2         images of several sizes in one batch
      BadIndex 2              (IndexError)
      UnknownKey 2            (KeyError)
      BadInput 3              a file of the source is damaged or does not fit (ValueError)
        DamagedImage 3        bytes that do not decode
        BadInputs 3           all bad files of one conversion
      CorruptPack 3           a pack or a part is not what was written (ValueError)
        CorruptRecord 3       one value of one sample is not what was written
        CrashingPart 3        reading the part ends the process that reads it
        DamagedObject 3       a file of a pack is damaged in the object store
      StorageError 4          no space, I/O error (OSError)
        StoreError 4          an object store does not answer, or refuses
          NoObject 4          there is no such object or bucket
          ObjectChanged 4     an object is not the one that was listed or opened
      OutOfMemory 4           more memory is needed than there is (MemoryError)
      Locked 5                another process works on the same target (BlockingIOError)
    Interrupted 128 + signal  (KeyboardInterrupt, so that no `except Exception` eats it)

Messages are one line: `where: what failed (sample, field): cause, expected and found; what to do`. Names of files and
texts of packs enter them as they are: `str` of an error, which tracebacks show too, makes them printable and cuts each
line to 4,000 characters, in its middle.
"""

import signal
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

_UNSEEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")  # controls, bidi marks, surrogates, unassigned, line breaks
MOST_CHARACTERS = 4_000  # of a line of an error, and of a reason in a manifest, which is at most 48,000 bytes of JSON


def printable(text: str) -> str:
    """The text on one line, as `escaped`: of a text of more than 4,000 characters, only the two ends."""
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
    """Base of all errors below; `exit_code` is what the command line returns.

    reasons: what the message sums up, a line each.
    """

    exit_code = 1

    def __init__(self, text: str | None = None, /, *, reasons: Sequence[str] = (), message: str | None = None) -> None:
        """text: the message, one line. message: one of several lines, which is how torch's DataLoader wraps the error
        of a worker (`ExceptionWrapper.reraise` passes it by this name to classes that have an attribute of it)."""
        given = text if message is None else message
        super().__init__(*(() if given is None else (given,)))
        self.reasons = tuple(reasons)
        self._has_lines = message is not None

    @property
    def message(self) -> str:
        """The message as it was given, names in it as they are: for programs, not for a terminal."""
        return str(self.args[0]) if self.args else self.__class__.__name__

    def __str__(self) -> str:  # KeyError and OSError would print a repr or a tuple
        lines = self.message.split("\n") if self._has_lines else [self.message]
        return "\n".join(map(printable, (*lines, *self.reasons)))


class InvalidRequest(PackerError, ValueError):
    """What was asked for cannot be done, or would destroy something."""

    exit_code = 2


class PackExists(InvalidRequest, FileExistsError):
    """The target of a conversion is already there."""


class MissingPackage(InvalidRequest, ImportError):
    """An optional Python package is not installed; the message holds the command that installs it."""


class UnsafePath(InvalidRequest):
    """What lies where packer would write is not its own: a link, another's folder, one that others may change.

    Nothing in it is touched.
    """


class WrongType(InvalidRequest, TypeError):
    """An argument of a type that cannot be meant."""


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
    """An object store does not answer within the caller's patience, or refuses what is asked for."""


class NoObject(StoreError):
    """There is no such object or bucket in a store."""


class ObjectChanged(StoreError):
    """An object of a store is not the one any more that was listed or opened."""


class OutOfMemory(PackerError, MemoryError):
    """What was asked for needs more memory than this process may have; the message says how much, where that is known.

    A MemoryError that Python or NumPy raises elsewhere is left as it is: whoever catches MemoryError gets both. The
    command line ends with the same exit code for either.
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
