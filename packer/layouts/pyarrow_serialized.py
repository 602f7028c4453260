"""pyarrow.serialize: plain values that pyarrow.serialize wrote, which pyarrow removed in version 12.

Each version wrote a header of counts and one Arrow stream with one row. Without arrays and tensors, the header is 8
zeros (pyarrow 0.10) or 16 zeros (0.14 to 11); others are refused. Any later pyarrow reads the stream, which is then
validated. Unions are converted here, because the conversion of pyarrow swaps the children that 0.10 wrote.
Source: python/pyarrow/serialization.pxi and cpp/src/arrow/python/serialize.cc of these versions.
"""

import struct
from types import ModuleType
from typing import Any

from packer.errors import BadInput
from packer.registry import import_or_explain

_MESSAGE = bytes.fromhex("1000000000000a00")  # start of the schema
_HEADERS = {12: 8, 20: 16, 24: 16}  # offset of the schema in 0.10, 0.14 and since 0.15 -> bytes of the header
_LIST = b"item"
_MOST_DEPTH = 20
_PYTHON_ERRORS = (ValueError, IndexError, TypeError)  # of pyarrow for damaged values


def is_payload(value: bytes) -> bool:
    """Return True if the first bytes are those of pyarrow.serialize. Arrays in the value are not detected."""
    return _schema_at(value) is not None


def holds_list(value: bytes) -> bool:
    """Return True if the schema of a payload contains a list or a tuple. False for other bytes. Needs no pyarrow."""
    at = _schema_at(value)
    if at is None:
        return False
    (size,) = struct.unpack_from("<I", value, at - 4)
    return _LIST in value[at : at + min(size, len(value))]


def loads(value: bytes) -> Any:
    """Return the value of a payload: None, bool, int, float, str, bytes and lists of these; tuples become lists.

    Raises:
        BadInput: The value is not a payload, or contains arrays.
        MissingPackage: pyarrow is not installed.
    """
    pa = import_or_explain("pyarrow", "what pyarrow.serialize wrote")
    ipc = import_or_explain("pyarrow.ipc", "what pyarrow.serialize wrote")
    at = _schema_at(value)
    if at is None:
        raise BadInput("damaged: not a value of pyarrow.serialize: no Arrow stream begins in it")
    start = _HEADERS[at]
    if any(value[:start]):
        raise BadInput("a value of pyarrow.serialize that holds arrays or tensors: packer reads only plain values")
    try:
        messages = ipc.MessageReader.open_stream(pa.py_buffer(value)[start:])
        schema = ipc.read_schema(_next(messages, "schema"))
        for field in schema:
            _check_type(pa.types, field.type, _MOST_DEPTH)
        message = _next(messages, "record batch")
        if _is_compressed(message.metadata.to_pybytes()):
            raise BadInput("damaged: not a value of pyarrow.serialize: it is compressed")
        batch = ipc.read_record_batch(message, schema)
        batch.validate(full=True)
        if batch.num_rows != 1 or batch.num_columns != 1:
            raise BadInput(f"damaged: {batch.num_rows} rows of {batch.num_columns} columns: expected one value")
        (found,) = _values(pa.types, batch.column(0), len(value))
    except BadInput:
        raise
    except (pa.ArrowException, OSError, EOFError, StopIteration, struct.error, *_PYTHON_ERRORS) as error:
        raise BadInput(f"damaged: not a value of pyarrow.serialize: {error}") from error
    return found


def _schema_at(value: bytes) -> int | None:
    """Return the offset of the schema, or None if the value is not a payload."""
    return next((at for at in _HEADERS if value[at : at + len(_MESSAGE)] == _MESSAGE), None)


def _next(messages: Any, kind: str) -> Any:
    """Return the next message. Raise BadInput unless its type is `kind`, because pyarrow would end the process."""
    message = messages.read_next_message()
    if message.type != kind:
        raise BadInput(f"damaged: not a value of pyarrow.serialize: a message of {message.type}, expected {kind}")
    return message


def _check_type(types: ModuleType, kind: Any, depth: int) -> None:
    """Raise BadInput for a type that pyarrow.serialize does not write for plain values, or nested beyond `depth`."""
    if depth == 0:
        raise BadInput("a value of pyarrow.serialize with lists in lists, twenty deep")
    if types.is_union(kind) or types.is_struct(kind) or types.is_list(kind):
        if types.is_union(kind) and kind.mode != "dense":
            raise BadInput("damaged: not a value of pyarrow.serialize: a sparse union")
        for at in range(kind.num_fields):
            _check_type(types, kind.field(at).type, depth - 1)
        return
    plain = (types.is_null, types.is_boolean, types.is_integer, types.is_floating, types.is_binary, types.is_string)
    if not any(is_of_type(kind) for is_of_type in plain):
        raise BadInput(f"a value of pyarrow.serialize with {str(kind)[:60]}: expected bytes, texts and numbers")


def _is_compressed(metadata: bytes) -> bool:
    """Return True for a compressed record batch (Arrow's Message.fbs), which could decompress to any size."""
    header = _member(metadata, struct.unpack_from("<I", metadata)[0], 2)
    return header is not None and _member(metadata, header, 3) is not None


def _member(data: bytes, table: int, number: int) -> int | None:
    """Return the offset of the FlatBuffers table that is the member `number` of another table, None if it is absent."""
    members = table - struct.unpack_from("<i", data, table)[0]
    at = 4 + 2 * number
    if at >= struct.unpack_from("<H", data, members)[0]:
        return None
    offset = struct.unpack_from("<H", data, members + at)[0]
    return table + offset + struct.unpack_from("<I", data, table + offset)[0] if offset else None


def _values(types: ModuleType, array: Any, most: int) -> list[Any]:
    """Return the entries of a validated array as Python values. Raise BadInput for more than `most` entries."""
    if len(array) > most:
        raise BadInput(f"damaged: an array of {len(array)} entries in a value of {most} bytes")
    if not len(array):
        return []  # without buffers, pyarrow would end the process
    kind = array.type
    if types.is_union(kind):
        children = [_values(types, array.field(at), most) for at in range(kind.num_fields)]
        codes, offsets = array.type_codes.to_pylist(), array.offsets.to_pylist()
        return [children[code][offset] for code, offset in zip(codes, offsets, strict=True)]
    if types.is_list(kind):
        within, bounds = _values(types, array.values, most), array.offsets.to_pylist()
        return [within[first:last] for first, last in zip(bounds, bounds[1:], strict=False)]
    if types.is_struct(kind):
        if kind.num_fields != 1:
            raise BadInput("a value of pyarrow.serialize that is a dict: expected bytes, texts, numbers and lists")
        return _values(types, array.field(0), most)
    found: list[Any] = array.to_pylist()
    return found
