"""Source: an original data set on disk, read as samples. This module is the contract of all sources.

A source implements `__len__`, `entry` and `read`; its constructor sets the attributes of `Source`.

* The constructor lists the folder or the archive and chooses the schema and the order. It opens tables and annotation
  files, and the first bytes of some other files. It raises BadInput if files contradict each other; the message names
  all of them. It raises InvalidRequest if the folder does not exist or is not a data set of this source.
* The order depends on names alone, never on the order in which the folder is listed.
* `source[i]` reads the files of one sample. The value of a pixel field is the **bytes** of its file, or an array if the
  source computes it (depth from a point cloud). Other values are decoded.
* Files are read by `read_file`, which follows a link out of the folder only with the option `follow_links`.
* A source is picklable, several threads may read it, and it keeps no file open. Sources of Python objects are
  picklable if the objects are.
* The options are the keyword-only parameters of the constructor. Each has a default that a manifest can store: str,
  int, bool or a tuple of str. packer.sources._options declares each option for the command line.
"""

import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from packer.errors import BadIndex, BadInput, DamagedImage, InvalidRequest
from packer.schema import MOST_PIXELS, Schema
from packer.sources._file_pattern import stored_path
from packer.sources._message_texts import shown
from packer.sources._trees.file_tree import FileTree
from packer.sources._trees.folder_tree import read_file as read_file
from packer.sources._trees.listing import Listing, scan
from packer.sources._trees.open_tree import open_tree

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MOST_PROBES = 16
UNTAKEN = "(untaken)"  # in the sample of a record: the names of its entries that are not in the schema
Sample = dict[str, Any]
Frame = Literal["stored", "upright", "stated"]
_FRAMES: Mapping[str, Frame] = {"auto": "stated", "stored": "stored", "upright": "upright"}
_NOTHING: Mapping[str, Any] = {}


class Provenance(NamedTuple):
    """Facts about the samples of a pack or a Python object that a conversion uses instead of the files.

    Attributes:
        sizes: The bytes of each sample.
        files: The number of files that contain the samples.
        digest: A digest of their content.
        identity: Bytes that change with anything that a conversion depends on.
        origin: The description of the source in the manifest of the next pack.
        asked: The options of the source in that manifest.
    """

    sizes: "npt.NDArray[np.int64]"
    files: int
    digest: str
    identity: bytes
    origin: Mapping[str, Any]
    asked: Mapping[str, Any]


class Extent(NamedTuple):
    """The place of a record: the relative path of its file, its first byte there, and its size in bytes."""

    name: str
    offset: int
    size: int


class SampleEntry(NamedTuple):
    """The facts about a sample that its source has listed.

    Attributes:
        key: The unique text id.
        files: The relative paths of all files that the sample is read from, the main file first; empty for Python
            objects.
        stem: The relative path of the main file without its suffix; a sidecar is the stem and a suffix.
        extent: The place of the record in a large file; None for samples that are files.
        place: The place of the record for messages, such as `record at byte 12`.
    """

    key: str
    files: tuple[str, ...]
    stem: str
    extent: Extent | None = None
    place: str = ""


class Source(ABC):
    """Base class of all sources. The constructor of a subclass sets these attributes.

    Attributes:
        kind: The name that users type: the name of the module.
        root: The folder, archive or file that the user names.
        folder: The tree of files that is read; of a lone file, its folder.
        schema: The fields, each with a codec without loss.
        notes: Lines for the user on what was found.
        left_out: (key, reason) of each sample that the options skip.
        unread: (key, reason) of each image in a format that packer does not read.
        unread_message: A summary of these images and advice for the user.
        decodes: Whether the source decodes images that are files in other sources.
        companions: The fields that follow the EXIF orientation of the first image, such as sidecars.
        frame: The pixels that labels refer to if EXIF rotates an image: `stored`, `upright` (as viewers show them), or
            `stated`: those with the size that `stated_size` returns.
        tables: The relative paths of the files of many samples that the constructor has read.
        more_files: The relative paths of large files that no extent names.
        extras: The relative paths of files of the data set that belong to no sample.
        places: For each option that names an external folder: a digest of the files there, for the manifest.
        assumed: The options that a manifest always stores, with their values.
        outside: The folders above the root that options name, such as `../masks`.
        holds_records: Whether the samples are records in large files.
        is_encoded: Whether the values are already encoded, as in a pack.
        is_sequential: Whether the samples can only be read in their order.
        resume_reason: Why an interrupted conversion cannot resume; None if it can.
    """

    kind: str
    root: Path
    folder: FileTree
    schema: Schema
    notes: Sequence[str]
    left_out: Sequence[tuple[str, str]]
    unread: Sequence[tuple[str, str]] = ()
    unread_message: str = ""
    decodes: bool = False
    companions: Sequence[str] = ()
    frame: Frame = "stored"
    tables: Sequence[str] = ()
    more_files: Sequence[str] = ()
    extras: Sequence[str] = ()
    places: Mapping[str, str] = _NOTHING
    assumed: Mapping[str, str | int] = _NOTHING
    outside: Sequence[str] = ()
    holds_records: bool = False
    is_encoded: bool = False
    is_sequential: bool = False
    resume_reason: str | None = None
    _given: Mapping[str, Any] = _NOTHING  # the options of the constructor that a manifest can store

    def __new__(cls, *args: object, **options: Any) -> Self:
        """Keep the options for `asked`."""
        made = super().__new__(cls)
        plain = {name: _plain(value) for name, value in options.items()}
        made._given = {name: value for name, value in plain.items() if value is not None}
        return made

    def _open_root(self, root: "Path | FileTree", *, follow_links: bool) -> Listing:
        """Open a folder or an archive as the root, and list it; raises InvalidRequest, BadInput."""
        self.folder = open_tree(root, follow_links=follow_links)
        self.root = self.folder.root
        return scan(self.folder)

    def place(self, name: str) -> tuple[FileTree, str]:
        """Return the folder that contains a file, in the root or above it, and the path of the file there."""
        return place(self.folder, self.outside, name)

    def read_file(self, name: str, *, is_table: bool = False) -> bytes:
        """Return the bytes of a file by its relative path; raises BadInput.

        is_table: Whether the file belongs to many samples, and may be larger than a file of one sample.
        """
        folder, path = self.place(name)
        return folder.read(path, is_table=is_table)

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Return the options of the constructor in order, each with its default."""
        parameters = inspect.signature(cls.__init__).parameters.values()
        return {each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY}

    def asked(self) -> dict[str, Any]:
        """Return the options, sidecars and splits of this source, as the manifest of a pack stores them."""
        places, defaults = dict(self.places), self.defaults()
        given = {name: value for name, value in self._given.items() if defaults.get(name, value) != value}
        return {
            "kind": self.kind,
            "options": {**self.assumed, **{name: value for name, value in given.items() if name not in places}},
            "sidecars": [],
            **({"places": places} if places else {}),
            "splits": {},
        }

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of samples."""

    @abstractmethod
    def entry(self, index: int) -> SampleEntry:
        """Return the facts about a sample without reading a file; raises BadIndex."""

    @abstractmethod
    def read(self, index: int, names: Sequence[str]) -> Sample:
        """Return the named fields of a sample, and maybe more; reads no more files than needed.

        Raises:
            BadInput: A file cannot be read or parsed; the message names it.
            BadIndex: The index is not that of a sample.
        """

    def __getitem__(self, index: int) -> Sample:
        return self.read(index, self.schema.names)

    def value(self, index: int, name: str) -> Any:
        """Return one field of a sample; raises as `read` does."""
        return self.read(index, (name,))[name]

    def key(self, index: int) -> str:
        """Return the unique text id of a sample; raises BadIndex."""
        return self.entry(index).key

    @classmethod
    def recognize(cls, tree: FileTree, names: Sequence[str]) -> str | None:
        """Return a line on what was recognized; None if these files are not a data set of this source.

        Args:
            tree: A folder or an archive.
            names: The relative paths of its files; of a lone file, its name alone.
        """
        return None

    def stated_size(self, index: int) -> tuple[int, int] | None:
        """Return the height and width in px of the image that the labels of a sample state; None for none."""
        return None

    def provenance(self) -> Provenance | None:
        """Return the facts that replace the files of the source; None if the files are listed."""
        return None

    def subset(self, rows: Sequence[int]) -> "Source | None":
        """Return a source of these rows; None if `source_wrapper.subset` makes it."""
        return None

    def missing(self, index: int) -> str | None:
        """Return why a sample is incomplete, such as an absent annotation; None if it is complete."""
        self.checked(index)
        return None

    def checked(self, index: int) -> int:
        """Return the index; raises BadIndex outside of 0 ... len - 1."""
        if not 0 <= index < len(self):
            raise BadIndex(f"{self.root}: no sample {index}; there are {len(self)}, counted from 0")
        return index


def place(folder: FileTree, outside: Sequence[str], name: str) -> tuple[FileTree, str]:
    """Return the folder that contains a file, and the path of the file there.

    outside: The folders above the root that files may be in, such as `../masks`.
    """
    for above in outside:
        if name.startswith(f"{above}/"):
            return folder.above(above), name[len(above) + 1 :]
    return folder, name


def sample_name(source: Source, index: int, path: str | None = None) -> str:
    """Return the name of a sample for messages.

    Args:
        source: The source.
        index: The row of the sample.
        path: The path of one of its files, as the field `files` has it.
    """
    entry = source.entry(index)
    if not entry.files:
        return f"{source.root}{entry.place}"
    root = source.folder.root
    if entry.place:
        return f"{root / entry.files[0]}: {entry.place} ({shown(entry.key)})"
    path = entry.files[0] if path is None else path
    for folder in source.outside:
        name = stored_path(folder)
        if path.startswith(f"{name}/"):
            return str(root / (folder + path[len(name) :]))
    return str(root / path)


def file_paths(source: Source, index: int) -> list[Path]:
    """Return the paths of all files that a sample is read from, the main file first."""
    return [source.folder.root / name for name in source.entry(index).files]


def stem_of(name: str) -> str:
    """Return a path without the suffix of its file name."""
    start = name.rfind("/") + 1
    dot = name.rfind(".")
    return name[:dot] if start < dot < len(name) - 1 else name


def probe_indices(count: int, *, is_sequential: bool = False) -> Sequence[int]:
    """Return at most 16 rows to inspect, spread evenly over `count` rows, or the first ones if they are sequential."""
    if is_sequential:
        return range(min(MOST_PROBES, count))
    return sorted({number * count // MOST_PROBES for number in range(MOST_PROBES)})


def probed_mask_dtype(source: Source, name: str) -> str:
    """Return the dtype of a mask: uint16 if the file of one of a few samples has 16 bits, else uint8."""
    from packer.images import sniff  # NumPy and decoders, which listing a folder does without

    for index in probe_indices(len(source)):
        try:
            if sniff(source.value(index, name), MOST_PIXELS).bits > 8:
                return "uint16"
        except (BadInput, DamagedImage):
            continue  # reading the sample raises it
    return "uint8"


def relative_name(path: Path, root: str) -> str:
    """Return the path of a file relative to a folder; it begins with `../` for a file outside of the folder."""
    text = str(path)
    return text[len(root) + 1 :] if text.startswith(f"{root}/") else os.path.relpath(text, root)


def _plain(value: object) -> str | int | tuple[str, ...] | None:
    """Return the value of an option as a manifest stores it; None if a manifest cannot store it."""
    if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        return tuple(value)
    return value if isinstance(value, str | int) else None


def check_choice(option: str, value: str | int, choices: Sequence[str | int]) -> None:
    """Raise InvalidRequest for a value that the option does not have."""
    if value not in choices:
        raise InvalidRequest(
            f"option {option}: unknown value {value!r}; expected one of {', '.join(map(str, choices))}"
        )


def frame_of(labels_orientation: str) -> Frame:
    """Return the frame of a source whose label files state image sizes: `stated` for the option `auto`."""
    check_choice("labels_orientation", labels_orientation, tuple(_FRAMES))
    return _FRAMES[labels_orientation]
