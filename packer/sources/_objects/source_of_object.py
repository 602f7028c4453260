"""Source of object: the source that a Python object is, recognised by the names of its classes."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from pathlib import Path
from typing import Any, NamedTuple, cast

from packer.errors import BadInput, InvalidRequest
from packer.sources import base
from packer.sources._objects import hugging_face, torchvision_folder
from packer.sources._objects.listed_files import FileList, Listed, source_of_list
from packer.sources._objects.object_class import is_a, said
from packer.sources._objects.object_fields import FieldsAsked, entry_of
from packer.sources._objects.object_rows import Indexable, IndexedRows, ObjectRows, SequentialRows
from packer.sources._objects.object_source import ObjectSource, key_text
from packer.sources._objects.object_values import Axes
from packer.sources._parse.folder_listing import counted, listed

Objects = Indexable | Iterable[Any]
KeyAsked = str | Sequence[str] | Callable[[int], str] | None
_ROWS_AT_ONCE = 1000  # of a Hugging Face data set, while it is asked whether it is a folder


class ObjectOptions(NamedTuple):
    """What the user says of an object; see `packer.convert`."""

    fields: FieldsAsked = None
    key: KeyAsked = None
    length: int | None = None
    fingerprint: str | None = None
    axes: Axes = "auto"
    follow_links: bool = False

    def without(self, allowed: Sequence[str], name: str) -> None:
        """Raise InvalidRequest where another option than those is given. name: of the object."""
        given = [option for option, default in self._field_defaults.items() if getattr(self, option) != default]
        unfit = [option for option in given if option not in allowed]
        if unfit:
            raise InvalidRequest(
                f"<{name}>: is read by its list of files, which has no option {unfit[0]}; it has: {', '.join(allowed)}"
            )


def source_of(data: Objects, options: ObjectOptions) -> Listed:
    """The source of an object, and the options of the folder source where it is one.

    Raises InvalidRequest for what cannot be packed, saying what to pass instead.
    """
    if isinstance(data, Mapping) and not hugging_face.is_splits(data):
        raise InvalidRequest(
            f"<{said(data)}>: samples of a mapping have no order of their own; pass list(d.values()), key=list(d), or "
            "one of the data sets in it"
        )
    _check_no_loader(data)
    inner, rows = unwrapped(data)
    if torchvision_folder.recognised(inner):
        options.without(("follow_links",), said(inner))
        return source_of_list(torchvision_folder.file_list(inner, rows), follow_links=options.follow_links)
    if hugging_face.is_dataset(inner):
        return _of_hugging_face(inner if rows is None else cast(Any, inner).select(list(rows)), options)
    if hugging_face.is_iterable(data) or hugging_face.is_splits(data):
        return _of_hugging_face(data, options)
    names = getattr(inner, "classes", None)  # of torchvision's data sets
    classes = names if isinstance(names, list | tuple) and all(isinstance(name, str) for name in names) else ()
    return _of_object(said(data), hugging_face.Prepared(data, {}, None), options, classes=classes)


def _check_no_loader(data: object) -> None:
    """Raise InvalidRequest for what gives batches or columns."""
    if is_a(data, "torch.utils.data.dataloader", "DataLoader") or is_a(data, "packer.loading.loader", "Loader"):
        raise InvalidRequest(f"<{said(data)}>: gives batches; pass its data set, loader.dataset")
    if is_a(data, "pandas.core.frame", "DataFrame"):
        raise InvalidRequest("<pandas.DataFrame>: its places are columns; pass frame.to_dict('records')")


def unwrapped(data: object) -> tuple[Any, Sequence[int] | None]:
    """What torch's Subsets are of, and which rows of it; None for all. Derived classes may change samples."""
    rows: Sequence[int] | None = None
    while said(data) == "torch.utils.data.dataset.Subset":
        subset: Any = data
        indices = [int(index) for index in subset.indices]
        rows = indices if rows is None else [indices[row] for row in rows]
        data = subset.dataset
    return data, rows


# ---- anything that gives samples


def _of_object(
    name: str,
    prepared: hugging_face.Prepared,
    options: ObjectOptions,
    *,
    classes: Sequence[str] = (),
    frame: base.Frame = "stored",
) -> Listed:
    if options.follow_links:
        raise InvalidRequest("option follow_links is for folders and lists of files")
    rows = keyed = _rows(prepared.data, options.length)
    if isinstance(options.key, str) and options.key in prepared.columns:  # which is read alone
        keyed = IndexedRows([{options.key: value} for value in prepared.data[options.key]], len(rows))
    keys, entry = _keys(keyed, name, options.key)
    source = ObjectSource(
        rows,
        name,
        fields=options.fields,
        declared=prepared.declared,
        keys=keys,
        key=entry,
        fingerprint=options.fingerprint or prepared.fingerprint,
        classes=classes,
        axes=options.axes,
        frame=frame,
        notes=prepared.notes,
    )
    return Listed(source, {})


def _rows(data: Any, length: int | None) -> ObjectRows:
    """By their numbers where the object has a length and takes them, else one after the other."""
    name = said(data)
    if length is not None and (isinstance(length, bool) or length < 1):
        raise InvalidRequest(f"<{name}>: length={length!r}: expected the number of samples, 1 or more")
    has_length = isinstance(data, Sized)
    if hasattr(data, "__getitem__") and not isinstance(data, Iterator) and not _is_iterable_dataset(data):
        if length is not None and has_length and len(data) != length:
            raise InvalidRequest(f"<{name}>: has {counted(len(data), 'sample')}, length= says {length}; leave it out")
        if not has_length and length is None:
            raise InvalidRequest(f"<{name}>: says no length; give it: length=")
        return IndexedRows(data, len(data) if has_length else cast(int, length))
    if not isinstance(data, Iterable):
        raise InvalidRequest(
            f"<{name}>: is no source: expected a path, a Source, what has len() and [i] (a Dataset, a list), or an "
            "iterable with length="
        )
    count = len(data) if isinstance(data, Sized) and length is None else length
    if count is None:
        raise InvalidRequest(
            f"<{name}>: an iterable does not say how many samples it has, which parts and checks are planned by: give "
            "length="
        )
    return SequentialRows(data, count, f"<{name}>")


def _is_iterable_dataset(data: object) -> bool:
    """torch's has a `__getitem__` from its base that raises."""
    return is_a(data, "torch.utils.data.dataset", "IterableDataset") or hugging_face.is_iterable(data)


def _keys(rows: ObjectRows, name: str, asked: KeyAsked) -> tuple[Sequence[str] | None, str | None]:
    """The keys of all samples where they are known, and the entry that holds them; raises InvalidRequest, BadInput."""
    if asked is None:
        return None, None
    if isinstance(asked, str):
        if rows.is_sequential:
            return None, asked
        column = (entry_of(rows.read(index), asked) for index in range(len(rows)))
        return _unique([key_text(value, f"<{name}>[{row}]") for row, value in enumerate(column)], name), asked
    if callable(asked):
        return _unique([key_text(asked(index), f"key({index})") for index in range(len(rows))], name), None
    if len(asked) != len(rows):
        raise InvalidRequest(f"<{name}>: key has {counted(len(asked), 'text')}, there are {len(rows)} samples")
    return _unique([key_text(value, f"key[{row}]") for row, value in enumerate(asked)], name), None


def _unique(keys: Sequence[str], name: str) -> Sequence[str]:
    if len(set(keys)) != len(keys):
        seen: set[str] = set()
        twice = [key for key in keys if key in seen or seen.add(key)]  # type: ignore[func-returns-value]
        raise BadInput(
            f"<{name}>: {counted(len(twice), 'key')} stand more than once: {listed(twice)}; give each its own"
        )
    return keys


# ---- Hugging Face


def _of_hugging_face(data: Any, options: ObjectOptions) -> Listed:
    wanted = None if options.fields is None else list(options.fields)
    prepare = hugging_face.joined if hugging_face.is_splits(data) else hugging_face.prepared
    prepared = prepare(data, wanted=wanted)
    name = f"datasets.{type(data).__name__}"
    return _folder_of(prepared, options) or _of_object(name, prepared, options, frame="upright")


def _folder_of(prepared: hugging_face.Prepared, options: ObjectOptions) -> Listed | None:
    """The folder whose files a data set of `imagefolder` lists; None where it is none, or bytes lie in Arrow files."""
    names = prepared.columns
    if options != ObjectOptions(follow_links=options.follow_links) or prepared.notes or not prepared.columns:
        return None
    label = prepared.declared.get("label")
    if list(prepared.pictures) != ["image"] or set(names) - {"image", "label"}:
        return None
    if "label" in names and (label is None or not label.classes):
        return None
    paths, labels = [], []
    for start in range(0, len(prepared.data), _ROWS_AT_ONCE):
        rows = prepared.data[start : start + _ROWS_AT_ONCE]
        for value in rows["image"]:
            if (
                value is None
                or value["bytes"] is not None
                or not value["path"]
                or not Path(value["path"]).is_absolute()
            ):
                return None
            paths.append(value["path"])
        labels += rows.get("label", [])
    root = _common_folder(paths, is_labelled="label" in names)
    if root is None:
        return None
    classes = (label.classes or ()) if label is not None else ()
    files = FileList.of_paths(root, paths, labels if "label" in names else None, classes)
    found = source_of_list(files, follow_links=options.follow_links)
    return found if found.source.kind == "folder" else None


def _common_folder(paths: Sequence[str], *, is_labelled: bool) -> Path | None:
    """The folder of the classes, or of the pictures where there are none."""
    parents = {str(Path(path).parent) for path in paths}
    tops = {str(Path(path).parent) for path in parents} if is_labelled else parents
    return Path(next(iter(tops))) if len(tops) == 1 else None
