"""Interface of all sources. A source reads an original data set on disk as samples.

A source implements `__len__`, `entry` and `read`. Its constructor sets the attributes of `Source`.

* The constructor lists the folder or the archive, and sets the schema and the order of the samples. It reads tables,
  annotation files, and the first bytes of some other files. If files contradict each other, the constructor raises
  BadInput with all paths. A folder that does not exist, or is not a data set of this source, raises InvalidRequest.
* The order of samples depends only on file names and annotations, never on the order of the file system.
* `source[i]` reads the files of one sample. The value of a pixel field is the **bytes** of the image file. If the
  source computes the pixels (depth from a point cloud), the value is an array. Values of other fields are decoded.
* A source reads every file with `read_file`. Only with the option `follow_links`, it follows links out of the folder.
* A source is picklable and thread-safe, and keeps no file open. A source of Python objects is picklable if the objects
  are picklable.
* The options are the keyword-only parameters of the constructor. Each default can be stored in a manifest: str, int,
  bool or a tuple of str. packer.sources._option_table declares each option for the command line.
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
from packer.sources._trees.folder_scan import Listing, scan
from packer.sources._trees.folder_tree import read_file as read_file
from packer.sources._trees.open_tree import open_tree

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MOST_PROBES = 16
UNTAKEN = "(untaken)"  # key in a sample: the names of the entries of the record that are not in the schema
Sample = dict[str, Any]
Frame = Literal["stored", "upright", "stated"]
_FRAMES: Mapping[str, Frame] = {"auto": "stated", "stored": "stored", "upright": "upright"}
_NOTHING: Mapping[str, Any] = {}


class Provenance(NamedTuple):
    """Facts that replace the files of a data set if the source is a pack or a Python object.

    Attributes:
        sizes: Size of each sample in bytes, int64 (N,).
        files: Number of files that contain the samples, 0 for a Python object.
        digest: Hexadecimal digest of the content.
        identity: Bytes that change if any input of the conversion changes.
        origin: Description of the source, for the manifest of the new pack.
        asked: Options of the source, for the manifest of the new pack.
    """

    sizes: "npt.NDArray[np.int64]"
    files: int
    digest: str
    identity: bytes
    origin: Mapping[str, Any]
    asked: Mapping[str, Any]


class Extent(NamedTuple):
    """The place of a record in a file. `name` is the relative path of the file, `offset` and `size` are in bytes."""

    name: str
    offset: int
    size: int


class SampleEntry(NamedTuple):
    """Facts about a sample that are known without reading a file.

    Attributes:
        key: Unique text id.
        files: Relative paths of all files of the sample, main file first. Empty for Python objects.
        stem: Relative path of the main file without suffix. The path of a sidecar is the stem with another suffix.
        extent: Place of the record in a large file. None for samples that are files.
        place: Place of the record for messages, such as `record at byte 12`. Empty for samples that are files.
    """

    key: str
    files: tuple[str, ...]
    stem: str
    extent: Extent | None = None
    place: str = ""


class Source(ABC):
    """Base class of all sources. The constructor of a subclass sets these attributes.

    Attributes:
        kind: Name of the source that users type, such as `coco`.
        root: Path of the folder, archive or file from the user.
        folder: Tree of the files. If `root` is a single file, the tree of the folder that contains the file.
        schema: Fields of a sample, each with a lossless codec.
        notes: Lines for the user on the data set.
        left_out: (key, reason) of each sample that the options skip.
        unread: (key, reason) of each image in a format that packer does not read.
        unread_message: Summary of the images in `unread`, with advice for the user.
        decodes: True if the values of some pixel fields are arrays instead of the bytes of image files.
        companions: Fields whose pixels the option --labels-orientation describes if EXIF rotates the first image.
        frame: Pixels that labels refer to if EXIF rotates an image. `stored`: pixels of the file. `upright`: pixels as
            viewers show the image. `stated`: those whose size `stated_size` returns.
        tables: Relative paths of files with values of many samples, which the constructor has read.
        more_files: Relative paths of large files that contain no record of an `Extent`.
        extras: Relative paths of files of the data set that belong to no sample.
        places: Option with a folder outside the root -> digest of the files in that folder, for the manifest.
        assumed: Option -> value, for options that a manifest stores even if the user did not set them.
        outside: Folders outside the root that options name, such as `../masks`.
        holds_records: True if the samples are records in large files.
        is_encoded: True if the values are already encoded, as in a pack.
        is_sequential: True if the samples can only be read in order.
        resume_reason: Reason why an interrupted conversion cannot resume. None if it can resume.
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
        """Create a source, and store the options for `Source.asked`."""
        made = super().__new__(cls)
        plain = {name: _plain(value) for name, value in options.items()}
        made._given = {name: value for name, value in plain.items() if value is not None}
        return made

    def _open_root(self, root: "Path | FileTree", *, follow_links: bool) -> Listing:
        """Set `folder` and `root`, and return the list of files."""
        self.folder = open_tree(root, follow_links=follow_links)
        self.root = self.folder.root
        return scan(self.folder)

    def place(self, name: str) -> tuple[FileTree, str]:
        """Return `(tree, path)`: the tree that contains the file `name`, and the path of the file in this tree."""
        return place(self.folder, self.outside, name)

    def read_file(self, name: str, *, is_table: bool = False) -> bytes:
        """Return the bytes of the file at the relative path `name`. Raises BadInput if the file cannot be read.

        If `is_table` is true, the file contains values of many samples. The size limit is then higher.
        """
        folder, path = self.place(name)
        return folder.read(path, is_table=is_table)

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Return `{option: default}`, in the order of the keyword-only parameters of the constructor."""
        parameters = inspect.signature(cls.__init__).parameters.values()
        return {each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY}

    def asked(self) -> dict[str, Any]:
        """Return the value of `asked` in a manifest: kind, options that differ from defaults, sidecars and splits."""
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
        """Return facts about a sample, without reading a file. Raises BadIndex if `index` is not in 0 ... len - 1."""

    @abstractmethod
    def read(self, index: int, names: Sequence[str]) -> Sample:
        """Return `{field name: value}` of a sample. Only files that the fields `names` need are read.

        The result may contain values of other fields, too.

        Raises:
            BadInput: A file cannot be read or parsed. The message contains the path.
            BadIndex: `index` is not in 0 ... len - 1.
        """

    def __getitem__(self, index: int) -> Sample:
        return self.read(index, self.schema.names)

    def value(self, index: int, name: str) -> Any:
        """Return the value of the field `name` of a sample. Raises the errors of `read`."""
        return self.read(index, (name,))[name]

    def key(self, index: int) -> str:
        """Return the unique text id of a sample. Raises BadIndex if `index` is not in 0 ... len - 1."""
        return self.entry(index).key

    @classmethod
    def recognize(cls, tree: FileTree, names: Sequence[str]) -> str | None:
        """Return a line for the user on the data set, or None if the files are not a data set of this source.

        Args:
            tree: Tree of the folder or archive.
            names: Relative paths of the files. For a single file, only its name.
        """
        return None

    def stated_size(self, index: int) -> tuple[int, int] | None:
        """Return the size (height, width) in px that the labels of a sample state for the image, or None."""
        return None

    def provenance(self) -> Provenance | None:
        """Return the facts about a pack or Python object that replace its files. None for a source of files."""
        return None

    def subset(self, rows: Sequence[int]) -> "Source | None":
        """Return a source of the samples at `rows`. None means that `source_wrapper.subset` creates the source."""
        return None

    def missing(self, index: int) -> str | None:
        """Return the reason why a sample is incomplete, such as an absent annotation, or None if it is complete."""
        self.checked(index)
        return None

    def checked(self, index: int) -> int:
        """Return `index` unchanged. Raises BadIndex if `index` is not in 0 ... len - 1."""
        if not 0 <= index < len(self):
            raise BadIndex(f"{self.root}: no sample {index}; there are {len(self)}, counted from 0")
        return index


def place(folder: FileTree, outside: Sequence[str], name: str) -> tuple[FileTree, str]:
    """Return `(tree, path)`: the tree that contains the file `name`, and the path of the file in this tree.

    `folder` is the tree of the source. `outside` are other folders that may contain the file, such as `../masks`.
    """
    for above in outside:
        if name.startswith(f"{above}/"):
            return folder.above(above), name[len(above) + 1 :]
    return folder, name


def sample_name(source: Source, index: int, path: str | None = None) -> str:
    """Return a name of a sample for messages. For a record, the name contains the file, the place and the key.

    For other samples, it is the path of the file `path` of the field `files`. None selects the main file.
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
    """Return the paths of all files of a sample, main file first."""
    return [source.folder.root / name for name in source.entry(index).files]


def stem_of(name: str) -> str:
    """Return a path without the suffix of the file name."""
    start = name.rfind("/") + 1
    dot = name.rfind(".")
    return name[:dot] if start < dot < len(name) - 1 else name


def probe_indices(count: int, *, is_sequential: bool = False) -> Sequence[int]:
    """Return at most 16 of `count` rows to inspect: evenly spaced rows, or with `is_sequential`, the first rows."""
    if is_sequential:
        return range(min(MOST_PROBES, count))
    return sorted({number * count // MOST_PROBES for number in range(MOST_PROBES)})


def probed_mask_dtype(source: Source, name: str) -> str:
    """Return the dtype of a mask field: uint16 if one of at most 16 inspected files has 16 bits, else uint8."""
    from packer.images import sniff  # imported late: NumPy and decoders are not needed to list a folder

    for index in probe_indices(len(source)):
        try:
            if sniff(source.value(index, name), MOST_PIXELS).bits > 8:
                return "uint16"
        except (BadInput, DamagedImage):
            continue  # `read` raises the error later
    return "uint8"


def relative_name(path: Path, root: str) -> str:
    """Return the path of a file relative to the folder `root`. The result begins with `../` for a file outside."""
    text = str(path)
    return text[len(root) + 1 :] if text.startswith(f"{root}/") else os.path.relpath(text, root)


def _plain(value: object) -> str | int | tuple[str, ...] | None:
    """Return an option as a value that a manifest can store (str, int or tuple of texts), or None."""
    if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        return tuple(value)
    return value if isinstance(value, str | int) else None


def check_choice(option: str, value: str | int, choices: Sequence[str | int]) -> None:
    """Raise InvalidRequest if `value` is not in `choices`. `option` is the name of the option in the message."""
    if value not in choices:
        raise InvalidRequest(
            f"option {option}: unknown value {value!r}; expected one of {', '.join(map(str, choices))}"
        )


def frame_of(labels_orientation: str) -> Frame:
    """Return `Source.frame` for the option `labels_orientation`: `stated` for `auto`, otherwise the option itself."""
    check_choice("labels_orientation", labels_orientation, tuple(_FRAMES))
    return _FRAMES[labels_orientation]
