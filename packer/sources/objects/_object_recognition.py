"""Object recognition: the choice of a source for a Python object, by the names of its classes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import replace
from typing import Any, NamedTuple

from packer.errors import InvalidRequest
from packer.sources import base
from packer.sources._message_texts import counted
from packer.sources.objects import _hugging_face
from packer.sources.objects._isinstance_without_import import is_a, type_name
from packer.sources.objects._object_fields import FieldsRequest
from packer.sources.objects._object_rows import Indexable, ObjectRows, SequentialRows
from packer.sources.objects._object_source import KeyRequest, ObjectData, ObjectSource
from packer.sources.objects._object_values import Axes
from packer.sources.objects._torchvision_folder import is_torchvision_folder, source_of_list, torchvision_files
from packer.sources.objects._worker_rows import WorkerRows

Objects = Indexable | Iterable[Any]
_REFUSED = {
    ("torch.utils.data.dataloader", "DataLoader"): "returns batches; pass its data set, loader.dataset",
    ("packer.loading.loader", "Loader"): "returns batches; pass its data set, loader.dataset",
    ("pandas.core.frame", "DataFrame"): "is indexed by columns; pass frame.to_dict('records')",
}


class ObjectOptions(NamedTuple):
    """The options of `packer.convert` that apply to Python objects. `packer.convert` describes each option."""

    fields: FieldsRequest = None
    key: KeyRequest = None
    length: int | None = None
    fingerprint: str | None = None
    num_workers: int = 0
    axes: Axes = "auto"
    follow_links: bool = False


def open_object(data: Any, options: ObjectOptions) -> tuple[base.Source, dict[str, Any]]:
    """Return `(source, options)` for an object. `options` are the options of `source` for the manifest.

    Raises InvalidRequest for an object that cannot be packed. The message names an alternative.
    """
    name = type_name(data)
    refused = next((reason for known, reason in _REFUSED.items() if is_a(data, *known)), None)
    if isinstance(data, Mapping) and not _hugging_face.is_splits(data):
        refused = (
            "is a mapping, whose samples have no order; pass list(d.values()), key=list(d), or one of its data sets"
        )
    if refused is not None:
        raise InvalidRequest(f"<{name}>: {refused}")
    inner, rows = without_subsets(data)
    is_list_of_files = options._replace(num_workers=0) == ObjectOptions(follow_links=options.follow_links)
    if is_torchvision_folder(inner):
        if not is_list_of_files:
            raise InvalidRequest(f"<{type_name(inner)}>: its files are packed, with the option follow_links alone")
        return source_of_list(torchvision_files(inner, rows), follow_links=options.follow_links)
    if _hugging_face.is_dataset(inner) and rows is not None:
        data = inner.select(list(rows))
    if _hugging_face.is_dataset(data) or _hugging_face.is_iterable(data) or _hugging_face.is_splits(data):
        found = _hugging_face.object_data(data, request=None if options.fields is None else list(options.fields))
        files = _hugging_face.folder_files(found) if is_list_of_files else None
        if files is not None:
            source, folder_options = source_of_list(files, follow_links=options.follow_links)
            if source.kind == "folder":
                return source, folder_options
    else:
        names = getattr(inner, "classes", None)  # of torchvision's data sets
        has_names = isinstance(names, list | tuple) and all(isinstance(each, str) for each in names)
        found = ObjectData(data, name, classes=tuple(names or ()) if has_names else ())
    if options.follow_links:
        raise InvalidRequest("option follow_links is for folders and lists of files")
    found = replace(found, fingerprint=options.fingerprint or found.fingerprint)
    return (
        ObjectSource(
            found,
            _rows(found, options.length, options.num_workers),
            fields=options.fields,
            key=options.key,
            axes=options.axes,
        ),
        {},
    )


def without_subsets(data: object) -> tuple[Any, Sequence[int] | None]:
    """Return the dataset inside nested `torch.utils.data.Subset` objects, and the selected indices.

    The indices are None if `data` is not a Subset. Subclasses of Subset are not unwrapped.
    """
    rows: Sequence[int] | None = None
    while type_name(data) == "torch.utils.data.dataset.Subset":
        subset: Any = data
        indices = [int(index) for index in subset.indices]
        rows = indices if rows is None else [indices[row] for row in rows]
        data = subset.dataset
    return data, rows


def _rows(found: ObjectData, length: int | None, workers: int) -> ObjectRows:
    """Return rows with access by index if the object supports it, otherwise in sequence."""
    data, name = found.data, f"<{found.name}>"
    if length is not None and (isinstance(length, bool) or length < 1):
        raise InvalidRequest(f"{name}: length={length!r}: expected the number of samples, 1 or more")
    is_stream = is_a(data, "torch.utils.data.dataset", "IterableDataset") or _hugging_face.is_iterable(data)
    is_indexed = hasattr(data, "__getitem__") and not isinstance(data, Iterator) and not is_stream
    if not is_indexed and not isinstance(data, Iterable):
        raise InvalidRequest(
            f"{name}: is not a source: expected a path, a Source, an object with len() and [i] (a Dataset, a list), or "
            "an iterable with length="
        )
    count = len(data) if isinstance(data, Sized) else length
    if count is None:
        raise InvalidRequest(f"{name}: does not have a length; give length=, the number of its samples")
    if workers < 0 or (workers and not is_indexed):
        raise InvalidRequest(f"{name}: num_workers={workers}: expected a number of processes; 0 for an iterable")
    if not is_indexed:
        return SequentialRows(data, count if length is None else length, name)
    if length is not None and count != length:
        raise InvalidRequest(f"{name}: has {counted(count, 'sample')}, length= is {length}; leave it out")
    return WorkerRows(data, count, name, workers=workers) if workers else ObjectRows(data, count)
