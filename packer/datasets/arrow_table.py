"""Arrow table: returns the fields of a dataset that are not hidden, without pixels and bytes, as a pyarrow.Table."""

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from packer import codecs
from packer.pack.reader import Pack
from packer.registry import import_or_explain
from packer.schema import KEY, PIXEL_KINDS, Field

if TYPE_CHECKING:
    import pyarrow


def arrow_table(pack: Pack, rows: npt.NDArray[np.int64]) -> "pyarrow.Table":
    """Return the table of `PackDataset.table` for `rows` of a pack. Parts are read only for fields not in the index."""
    pa: Any = import_or_explain("pyarrow", "tables")
    columns = {KEY: pa.array([pack.index.key(row) for row in rows.tolist()])}
    for field in pack.schema:
        if field.kind in PIXEL_KINDS:
            height, width = pack.index.sizes(field.name)[rows].T
            columns |= {f"{field.name}_height": pa.array(height), f"{field.name}_width": pa.array(width)}
        elif field.has_rows:
            columns[f"{field.name}_count"] = pa.array(pack.index.counts(field.name)[rows])
        if field.name != KEY and field.kind not in (*PIXEL_KINDS, "bytes") and not field.hidden:
            columns[field.name] = _column(pa, pack, field, rows)
    return pa.table(columns)


def _column(pa: Any, pack: Pack, field: Field, rows: npt.NDArray[np.int64]) -> Any:
    if field.is_column:
        values = pack.index.column(field.name)[rows]
        values = values.astype(values.dtype.newbyteorder("="))
        if field.classes is not None and not field.shape and values.dtype.kind in "iu":
            is_class = (values >= 0) & (values < len(field.classes))
            codes = pa.array(np.where(is_class, values, 0).astype(np.int32), mask=~is_class)
            return pa.DictionaryArray.from_arrays(codes, list(field.classes))
        return pa.array(values if values.ndim == 1 else values.tolist())
    codec = codecs.make(field)
    found = []
    for row in rows.tolist():
        with pack.record(row, [field.name]) as record:
            value = codec.decode(record[field.name])
        found.append(json.dumps(value) if field.kind == "json" else value.tolist() if field.has_rows else value)
    return pa.array(found)
