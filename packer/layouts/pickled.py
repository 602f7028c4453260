"""pickled: plain values in pickles, read by a machine that can call nothing, and a few pickles written by hand.

Other tools pickle tuples of bytes and numbers into LMDBs. `pickletools` parses opcodes and their arguments. Opcodes
that only build values are executed here, and all others are refused: no name is ever imported or called.
The names in `_GLOBALS` are recognized: pickles contain NumPy's numbers as calls of them, and protocols up to 2 also
bytes. The results are bytes and arrays of a fixed set of dtypes. With the storages of a torch file
(packer.layouts.torch_file_reader), the names in `_TORCH` are recognized too, and tensors become arrays.
"""

import io
import math
import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput

MOST_BYTES = 1 << 30  # of one pickle
_MOST_DEPTH = 100  # of values in values
_MODULES = ("numpy.core", "numpy._core")  # NumPy 1 and 2
_KINDS = "biuf"
_GLOBALS = frozenset(
    (
        ("_codecs", "encode"),
        ("__builtin__", "bytes"),  # Python 2, for empty bytes
        ("builtins", "bytes"),
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
        *((f"{module}.multiarray", name) for module in _MODULES for name in ("_reconstruct", "scalar")),
        *((f"{module}.numeric", "_frombuffer") for module in _MODULES),
    )
)


# torch's storage classes -> dtype, in the byte order of the file
_STORAGES = {"DoubleStorage": "f8", "FloatStorage": "f4", "HalfStorage": "f2", "LongStorage": "i8", "IntStorage": "i4"}
_STORAGES |= {"ShortStorage": "i2", "CharStorage": "i1", "ByteStorage": "u1"}
_TORCH = frozenset(
    (
        ("collections", "OrderedDict"),
        *(("torch._utils", name) for name in ("_rebuild_tensor_v2", "_rebuild_parameter")),
        *(("torch", name) for name in _STORAGES),
    )
)
_MOST_LENGTHS = 8  # of an array

# key -> the bytes of a storage, and "<" or ">"; raises BadInput
ReadStorage = Callable[[str], tuple[memoryview, str]]


@dataclass(frozen=True)
class _KnownName:
    """A name of `_GLOBALS` or `_TORCH`, without its module."""

    name: str


@dataclass
class _Unbuilt:
    """An array or dtype that the opcode BUILD completes in `value`. code: "f4" or another dtype, None for an array."""

    code: str | None = None
    value: Any = None


@dataclass(frozen=True)
class _Storage:
    """The numbers of a torch storage."""

    numbers: npt.NDArray[Any]


class _Mark:
    """A mark on the stack before a list of items."""


def loads(data: bytes, *, storage: ReadStorage | None = None) -> Any:
    """Return the value: None, bool, int, float, str, bytes, tuple, list, dict, NumPy arrays and scalars.

    Args:
        data: The pickle.
        storage: `storage(key)` returns the bytes of a storage of a torch file, and "<" or ">". Tensors become read-only
            arrays over these bytes. None refuses tensors.

    Raises:
        BadInput: The pickle is damaged, or contains other values.
    """
    if len(data) > MOST_BYTES:
        raise BadInput(f"a pickle of {len(data)} bytes, expected at most {MOST_BYTES}")
    try:
        return _plain(_Machine(storage).run(data), _MOST_DEPTH)
    except BadInput:
        raise
    except (ValueError, IndexError, KeyError, AttributeError, TypeError, OverflowError, RecursionError) as error:
        raise BadInput(f"damaged: not a pickle of plain values: {error}") from error


_LITERALS = frozenset(
    (
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("BINSTRING", "SHORT_BINSTRING"),  # without STRING, whose decoder warns
        *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
        *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
    )
)
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_PUTS, _GETS = ("PUT", "BINPUT", "LONG_BINPUT"), ("GET", "BINGET", "LONG_BINGET")
_NOTHING = ("PROTO", "FRAME")
_OPCODES = {opcode.code: opcode for opcode in pickletools.opcodes}
_ALLOWED = frozenset((*_LITERALS, *_CONSTANTS, *_TUPLES, *_PUTS, *_GETS, *_NOTHING, "MEMOIZE", "GLOBAL"))


class _Machine:
    """The stack and the memo of one pickle. Any error in a method means that the pickle is damaged."""

    def __init__(self, storage: ReadStorage | None) -> None:
        self._storage = storage
        self._globals = _GLOBALS if storage is None else _GLOBALS | _TORCH
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._steps: dict[str, Callable[[], None]] = {
            "MARK": lambda: self._stack.append(_Mark()),
            "EMPTY_LIST": lambda: self._stack.append([]),
            "EMPTY_DICT": lambda: self._stack.append({}),
            "TUPLE": lambda: self._stack.append(tuple(self._marked())),
            "LIST": lambda: self._stack.append(self._marked()),
            "DICT": lambda: self._stack.append(_pairs(self._marked())),
            "APPEND": lambda: self._extend([self._stack.pop()]),
            "APPENDS": lambda: self._extend(self._marked()),
            "SETITEM": lambda: self._update([self._stack.pop(-2), self._stack.pop()]),
            "SETITEMS": lambda: self._update(self._marked()),
            "STACK_GLOBAL": lambda: self._stack.append(self._known(self._stack.pop(-2), self._stack.pop())),
            "REDUCE": lambda: self._stack.append(_reduced(self._stack.pop(-2), self._stack.pop())),
            "BUILD": lambda: _build(self._stack.pop(-2), self._stack.pop(), self._stack),
        }
        if storage is not None:
            self._steps["BINPERSID"] = lambda: self._stack.append(_stored(self._stack.pop(), storage))

    def run(self, data: bytes) -> Any:
        """Return the value of a pickle, in which arrays may still be `_Unbuilt`."""
        file = io.BytesIO(data)
        while True:
            opcode = _OPCODES.get(file.read(1).decode("latin-1"))
            if opcode is None:
                raise BadInput("damaged: a pickle with an unknown opcode, or without an end")
            name = opcode.name
            if name == "STOP":
                return self._stack.pop()
            if name not in _ALLOWED and name not in self._steps:
                raise BadInput(f"a pickle with the opcode {name}, which can make more than plain values: refused")
            argument: Any = None
            if name == "GLOBAL":  # the reader of pickletools warns
                argument = _line(file), _line(file)
            elif opcode.arg is not None:
                argument = opcode.arg.reader(file)
            if name in _LITERALS:
                self._stack.append(bytes(argument) if isinstance(argument, bytearray) else argument)
            elif name in _CONSTANTS:
                self._stack.append(_CONSTANTS[name])
            elif name in _TUPLES:
                self._stack.append(tuple(self._popped(_TUPLES[name])))
            elif name in _PUTS:
                self._memo[argument] = self._stack[-1]
            elif name == "MEMOIZE":
                self._memo[len(self._memo)] = self._stack[-1]
            elif name in _GETS:
                self._stack.append(self._memo[argument])
            elif name == "GLOBAL":
                self._stack.append(self._known(*argument))
            elif name in self._steps:
                self._steps[name]()

    def _known(self, module: Any, name: Any) -> _KnownName:
        if (module, name) not in self._globals:
            raise BadInput(f"a pickle that names {module!s:.60}.{name!s:.60}, which is not a plain value: refused")
        return _KnownName(name)

    def _popped(self, count: int) -> list[Any]:
        if len(self._stack) < count:
            raise IndexError("too few values")
        found = self._stack[len(self._stack) - count :]
        del self._stack[len(self._stack) - count :]
        return found

    def _marked(self) -> list[Any]:
        """Pop the values since the last mark, and the mark. Return the values."""
        for at in range(len(self._stack) - 1, -1, -1):
            if isinstance(self._stack[at], _Mark):
                found = self._stack[at + 1 :]
                del self._stack[at:]
                return found
        raise IndexError("no mark")

    def _extend(self, items: list[Any]) -> None:
        if type(self._stack[-1]) is not list:
            raise TypeError("items for a value that is not a list")
        self._stack[-1].extend(items)

    def _update(self, items: list[Any]) -> None:
        if type(self._stack[-1]) is not dict:
            raise TypeError("items for a value that is not a dict")
        self._stack[-1].update(_pairs(items))


def _line(file: io.BytesIO) -> str:
    """Read a line of text and return it without its end. Raise ValueError if it has no end."""
    line = file.readline()
    if not line.endswith(b"\n"):
        raise ValueError("a line without an end")
    return line[:-1].decode("utf-8")


def _pairs(items: list[Any]) -> dict[Any, Any]:
    if any(type(key) not in (str, bytes, int) for key in items[::2]):
        raise TypeError("keys that are not text, bytes or numbers")
    return dict(zip(items[::2], items[1::2], strict=True))


def _raw(value: Any) -> bytes:
    """Return the bytes of a value, which is text in pickles of Python 2."""
    return value.encode("latin-1") if isinstance(value, str) else bytes(memoryview(value))


def _reduced(name: Any, arguments: Any) -> Any:
    """Return what a call of the recognized `name` would return, without the call; raises BadInput for other names."""
    if not isinstance(name, _KnownName) or not isinstance(arguments, tuple):
        raise BadInput("a pickle that calls what it made itself: refused")
    if name.name == "encode":
        text, coding = arguments
        if coding != "latin1" or not isinstance(text, str):
            raise BadInput("a pickle that encodes text, not bytes: refused")
        return text.encode("latin-1")
    if name.name == "bytes":
        if arguments:
            raise BadInput("a pickle that makes bytes of something else: refused")
        return b""
    if name.name == "dtype":
        code = arguments[0]
        if not isinstance(code, str) or code[:1] not in _KINDS or code[1:] not in ("1", "2", "4", "8"):
            raise BadInput(f"an array of dtype {code!s:.40}: expected numbers")
        return _Unbuilt(code=code)
    if name.name == "_reconstruct":
        return _Unbuilt()
    if name.name == "scalar":
        return _array(_dtype(arguments[0]), (), _raw(arguments[1]), "C")[()]
    if name.name == "_frombuffer":
        raw, dtype, shape, order = arguments
        return _array(_dtype(dtype), shape, _raw(raw), order)
    if name.name == "OrderedDict" and not arguments:
        return {}
    if name.name == "_rebuild_tensor_v2":
        return _tensor(*arguments[:4])
    if name.name == "_rebuild_parameter" and isinstance(arguments[0], np.ndarray):
        return arguments[0]
    raise BadInput(f"a pickle that calls {name.name}: refused")


def _stored(identity: Any, storage: ReadStorage) -> _Storage:
    """Return the storage for a persistent id of torch: ("storage", class, key, device, number of numbers)."""
    kind, name, key, _, count = identity
    if kind != "storage" or not isinstance(name, _KnownName) or name.name not in _STORAGES or not isinstance(key, str):
        raise BadInput("a pickle with a persistent id that is not a storage of numbers: refused")
    data, order = storage(key)
    numbers = np.frombuffer(data, np.dtype(order + _STORAGES[name.name]))
    if type(count) is not int or len(numbers) != count:
        raise BadInput(f"damaged: a storage of {len(numbers)} numbers, expected {count!s:.20}")
    return _Storage(numbers)


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any) -> npt.NDArray[Any]:
    """Return a tensor of a storage; offset and strides count numbers. Raises BadInput if it exceeds the storage."""
    if not isinstance(storage, _Storage) or not all(isinstance(each, tuple) for each in (shape, strides)):
        raise TypeError("no tensor")
    if any(type(each) is not int or each < 0 for each in (offset, *shape, *strides)) or len(shape) > _MOST_LENGTHS:
        raise TypeError("no shape")
    last = offset + sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True))
    count = math.prod(shape)
    # a stride of 0 repeats numbers, so a small file could describe a huge tensor
    if count > len(storage.numbers) or (count and last >= len(storage.numbers)):
        raise BadInput(f"damaged: a tensor of shape {shape!s:.60} that exceeds its storage")
    numbers = storage.numbers[offset if count else 0 :]
    step = numbers.itemsize
    steps = tuple(stride * step if count else 0 for stride in strides)
    found: npt.NDArray[Any] = np.ndarray(shape, numbers.dtype, numbers, strides=steps)
    return found


def _build(what: Any, state: Any, stack: list[Any]) -> None:
    """Complete an array or a dtype from its state, and push it. The state of a dtype contains the byte order."""
    if not isinstance(what, _Unbuilt) or not isinstance(state, tuple):
        raise BadInput("a pickle that sets the state of an object: refused")
    if what.code is not None:
        order, names = state[1], state[3]
        if order not in ("<", ">", "|", "=") or names is not None:
            raise BadInput("an array of a structured dtype: expected numbers")
        what.value = np.dtype(("<" if order == "=" else order) + what.code)
    else:
        _, shape, dtype, is_fortran, raw = state
        what.value = _array(_dtype(dtype), shape, _raw(raw), "F" if is_fortran else "C")
    stack.append(what)


def _dtype(what: Any) -> np.dtype[Any]:
    if not isinstance(what, _Unbuilt) or not isinstance(what.value, np.dtype):
        raise TypeError("no dtype")
    return what.value


def _array(dtype: np.dtype[Any], shape: Any, raw: bytes, order: Any) -> Any:
    if (
        not isinstance(shape, tuple)
        or any(type(length) is not int or length < 0 for length in shape)
        or len(shape) > _MOST_LENGTHS
    ):
        raise TypeError("no shape")
    if order not in ("C", "F"):
        raise TypeError("no order")
    found = np.frombuffer(raw, dtype).reshape(shape, order="F" if order == "F" else "C")
    return found.astype(dtype.newbyteorder("="))


def _plain(value: Any, depth: int, done: dict[int, Any] | None = None) -> Any:
    """Return the value with arrays instead of `_Unbuilt`. done: id of each visited container -> its result."""
    done = {} if done is None else done
    if isinstance(value, _Unbuilt) and isinstance(value.value, np.ndarray):
        return value.value
    if isinstance(value, (_Unbuilt, _KnownName, _Storage, _Mark)):
        raise BadInput("damaged: an incomplete pickle")
    if not isinstance(value, (tuple, list, dict)):
        return value
    if depth == 0:
        raise BadInput("a pickle nested a hundred levels deep, or in itself")
    if id(value) not in done:
        if isinstance(value, dict):
            done[id(value)] = {key: _plain(item, depth - 1, done) for key, item in value.items()}
        else:
            done[id(value)] = type(value)(_plain(item, depth - 1, done) for item in value)
    return done[id(value)]


# ---- writing: protocol 3, the opcodes that pickletools names

_PROTO, _STOP = b"\x80\x03", b"."
_SMALL_INT = 1 << 31


def pair(data: bytes, number: int) -> tuple[bytes, int]:
    """Return a pickle of the tuple (data, number), and the offset of `data`, at most 4 GiB, in the pickle."""
    before = _PROTO + b"B" + len(data).to_bytes(4, "little")  # BINBYTES
    return before + data + integer(number) + b"\x86" + _STOP, len(before)  # TUPLE2


def integer(number: int) -> bytes:
    """Return the opcode that pushes a number of 64 bits."""
    if -_SMALL_INT <= number < _SMALL_INT:
        return b"J" + number.to_bytes(4, "little", signed=True)  # BININT
    return b"\x8a\x09" + number.to_bytes(9, "little", signed=True)  # LONG1


def pickled_count(number: int) -> bytes:
    """Return a pickle of a number."""
    return _PROTO + integer(number) + _STOP


def pickled_keys(count: int) -> bytes:
    """Return a pickle of the list b"0", b"1", ... with `count` keys."""
    keys = (b"%d" % number for number in range(count))
    return _PROTO + b"](" + b"".join(b"C%c%s" % (len(key), key) for key in keys) + b"e" + _STOP  # SHORT_BINBYTES
