"""Errors: exit codes, builtin bases, one line of text, and that they travel between processes."""

import copy
import pickle
import traceback

import pytest
from torch._utils import ExceptionWrapper

from packer import errors
from packer.errors import Interrupted, PackerError, printable

CODES = {
    "PackerError": 1,
    "InvalidRequest": 2,
    "PackExists": 2,
    "MissingPackage": 2,
    "UnsafePath": 2,
    "WrongType": 2,
    "MixedShapes": 2,
    "BadIndex": 2,
    "UnknownKey": 2,
    "BadInput": 3,
    "DamagedImage": 3,
    "BadInputs": 3,
    "CorruptPack": 3,
    "CorruptRecord": 3,
    "CrashingPart": 3,
    "DamagedObject": 3,
    "StorageError": 4,
    "StoreError": 4,
    "NoObject": 4,
    "ObjectChanged": 4,
    "OutOfMemory": 4,
    "Locked": 5,
}
BASES = {
    "InvalidRequest": ValueError,
    "PackExists": FileExistsError,
    "MissingPackage": ImportError,
    "WrongType": TypeError,
    "BadIndex": IndexError,
    "UnknownKey": KeyError,
    "BadInput": ValueError,
    "CorruptPack": ValueError,
    "StorageError": OSError,
    "OutOfMemory": MemoryError,
    "Locked": BlockingIOError,
}


def found() -> dict[str, type[PackerError]]:
    """Every class of errors.py that descends from PackerError."""
    classes = {name: value for name, value in vars(errors).items() if isinstance(value, type)}
    return {name: value for name, value in classes.items() if issubclass(value, PackerError)}


def test_every_error_has_its_exit_code() -> None:
    assert {name: value.exit_code for name, value in found().items()} == CODES


@pytest.mark.parametrize("name", sorted(BASES))
def test_an_except_clause_for_the_builtin_catches_it(name: str) -> None:
    with pytest.raises(BASES[name]):
        raise found()[name]("something")


def test_an_error_without_message_shows_its_class() -> None:
    assert str(PackerError()) == "PackerError"


@pytest.mark.parametrize("name", sorted(CODES))
def test_names_in_a_message_are_escaped_where_it_is_shown_and_kept_for_programs(name: str) -> None:
    error = found()[name]("'a'\x1b[2J\n\udcff.jpg: cut; b", reasons=["b\u202e\r: empty", "c: d"])
    for other in (error, pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(other) is type(error)
        assert str(other) == "'a'\\x1b[2J\\n\\udcff.jpg: cut; b\nb\\u202e\\r: empty\nc: d"
        assert other.reasons == ("b\u202e\r: empty", "c: d")
        assert other.message == "'a'\x1b[2J\n\udcff.jpg: cut; b"
        assert "".join(traceback.format_exception_only(other)) == f"packer.errors.{name}: {other}\n"


@pytest.mark.parametrize("name", sorted(CODES))
def test_the_traceback_of_a_worker_keeps_its_lines(name: str) -> None:
    try:
        raise found()[name]("a\nb\x1b: cut")
    except PackerError:
        wrapped = ExceptionWrapper(where="in DataLoader worker process 0")
    with pytest.raises(found()[name]) as caught:
        wrapped.reraise()
    for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
        lines = str(error).split("\n")
        assert lines[0] == f"Caught {name} in DataLoader worker process 0."
        assert lines[-2:] == [f"packer.errors.{name}: a\\nb\\x1b: cut", ""]


def test_an_interrupt_is_no_exception_that_a_handler_of_errors_eats() -> None:
    error = pickle.loads(pickle.dumps(Interrupted(15)))
    assert not isinstance(error, Exception)
    assert isinstance(error, KeyboardInterrupt)
    assert error.exit_code == 143
    assert str(error) == "interrupted (SIGTERM)"
    assert str(Interrupted(2)) == "interrupted (Ctrl-C)"
    assert str(Interrupted(99)) == "interrupted (signal 99)"


def test_a_line_of_an_error_is_cut_in_its_middle() -> None:
    error = PackerError("a.jpg: " + "x" * 5_000_000 + "\n; leave it out", reasons=["y" * 5_000_000])
    first, second = str(error).split("\n")
    assert len(first) < 4_010
    assert (first[:7], first[-14:]) == ("a.jpg: ", "; leave it out")
    assert len(second) == 4_000
    assert len(printable("\0" * 5_000_000)) < 4 * 4_000 + 10
    assert len(error.message) > 5_000_000, "for programs it stays complete"
