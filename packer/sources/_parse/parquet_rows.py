"""Parquet rows: the rows of a Parquet file, read with pyarrow, as rows of JSON that are found as those of JSON Lines.

Numbers and texts are as they were; dates, times and decimals are their text; categories are their values. Columns of
bytes are left out and named. pyarrow's own reader parses the file: read no Parquet file of somebody whom you would not
let run a program.
"""

import json
from array import array
from pathlib import Path
from typing import Any, NamedTuple

from packer.errors import BadInput, printable
from packer.registry import import_or_explain
from packer.sources._parse.table_rows import TableRows

_BATCH_ROWS = 1024
_MOST_BYTES = 4 << 30  # of all rows as JSON


class ParquetTable(NamedTuple):
    """bytes_columns: those of bytes, or with bytes in them, which `rows` does not have."""

    rows: TableRows
    bytes_columns: tuple[str, ...]


def read_parquet(path: Path, data: bytes) -> ParquetTable:
    """The rows of a Parquet file; raises BadInput, MissingPackage where pyarrow is not there."""
    pyarrow: Any = import_or_explain("pyarrow", "a table in a Parquet file")
    parquet: Any = import_or_explain("pyarrow.parquet", "a table in a Parquet file")
    found, starts, ends = bytearray(), array("q"), array("q")
    fault = ""
    raw: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    try:
        file = parquet.ParquetFile(pyarrow.BufferReader(data))
        schema = file.schema_arrow
        raw = tuple(field.name for field in schema if _holds_bytes(pyarrow, field.type))
        names = tuple(name for name in schema.names if name not in raw)
        if len(set(schema.names)) < len(schema.names):
            fault = "two columns have one name; rename one of them"
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=list(names)) if not fault else ():
            columns = [batch.column(name).to_pylist() for name in names]
            for row in zip(*columns, strict=True):
                starts.append(len(found))
                found += json.dumps(row, default=str, ensure_ascii=False).encode("utf-8", "surrogatepass")
                ends.append(len(found))
                found += b"\n"
            if len(found) > _MOST_BYTES:
                fault = f"its rows have more than {_MOST_BYTES >> 30} GiB as text; cut it into several"
                break
    except (
        OSError,
        ValueError,
        OverflowError,
        KeyError,
        TypeError,
        pyarrow.ArrowException,
        pyarrow.ArrowInvalid,
    ) as error:
        fault = f"no Parquet file that pyarrow reads: {printable(' '.join(str(error).split())[:200])}; get it again"
    if fault:
        raise BadInput(f"{printable(str(path))}: {fault}")
    return ParquetTable(TableRows(path, bytes(found), names, listed=True, starts=starts, ends=ends), raw)


def _holds_bytes(pyarrow: Any, kind: Any) -> bool:
    types = pyarrow.types
    if types.is_dictionary(kind):
        return _holds_bytes(pyarrow, kind.value_type)
    is_bytes = types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
    inner = [kind.field(at).type for at in range(kind.num_fields)]
    return bool(is_bytes) or any(_holds_bytes(pyarrow, each) for each in inner)
