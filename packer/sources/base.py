"""Source: an original data set on disk, as samples.

What a source may rely on and what others rely on:

* Making one lists the folder or the archive (packer.sources._trees) and settles the schema, the order and what is
  missing. No file is opened but tables, the first bytes of files that may be images though their names do not say so,
  a few images where names leave open whether they are masks, and annotation files where nothing else names the
  classes. It raises BadInput, naming all culprits, where files contradict each other. Images that it cannot read are
  in `unread`: whoever packs it refuses them, or lists them as skipped. It raises InvalidRequest for a folder that is
  not there, as `_trees.listing.scan` does, and for one that holds no such data set, saying what it expects.
* The order is stable: it depends on names alone, never on the order in which the folder is listed.
* `source[i]` reads the files of one sample. A pixel field that is a file is given as the file's **bytes**; a pixel
  field that was computed (depth from a point cloud) as an array; all other fields as their decoded value.
  It raises BadInput with the path for a file that cannot be read or parsed. Files are read by `read`: a link out of the
  folder is followed only where the option `follow_links` says so.
* A sample of a record may also have UNTAKEN: the names of what its record holds and no field takes, since no record
  that was looked at for the schema has it.
* A source is picklable and may be read by several threads at once. It holds no open file. (Of Python objects,
  packer.sources.objects, it is as picklable as they are.)
* Its options are the keyword-only parameters of its constructor, each with a default: str, int, bool or a tuple of str,
  since a manifest stores them. Each is declared in packer.sources._options, which the command line follows.
"""

import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

from packer.errors import BadIndex, BadInput, DamagedImage, InvalidRequest
from packer.schema import MOST_PIXELS, Buffer, Schema
from packer.sources._file_pattern import stored_path
from packer.sources._trees.file_tree import FileTree
from packer.sources._trees.folder_tree import SourceRoot
from packer.sources._trees.folder_tree import read_file as read_file
from packer.sources._trees.listing import Listing, scan
from packer.sources._trees.open_tree import open_tree

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MOST_PROBES = 16
UNTAKEN = "(untaken)"  # no field has such a name
Sample = dict[str, Any]
Frame = Literal["stored", "upright", "stated"]
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Provenance(NamedTuple):
    """What a source that was packed once knows of its samples without reading them: a manifest says it.

    sizes: bytes of each sample. files: how many hold them. digest: of their content. identity: bytes that change with
    anything that a conversion depends on. origin, asked: what the manifest of the next pack says of the source, and of
    what was asked of it.
    """

    sizes: "npt.NDArray[np.int64]"
    files: int
    digest: str
    identity: bytes
    origin: Mapping[str, Any]
    asked: Mapping[str, Any]


class Extent(NamedTuple):
    """Where a record lies: the relative path of its file, the first of its bytes there, and how many they are."""

    name: str
    offset: int
    size: int


class Source(ABC):
    """Base of all sources; see the module's contract."""

    kind: str  # the name that the user types: the module's name

    root: Path
    schema: Schema  # every field that this set has, with the codec that loses nothing
    notes: Sequence[str]  # what was found and what is missing, one line each, for the user
    left_out: Sequence[tuple[str, str]]  # (key, reason) of every sample that the user's choice leaves out
    unread: Sequence[tuple[str, str]] = ()  # (key, reason) of images in formats that nobody reads
    unread_message: str = ""  # how many of these there are of which format, and what to do
    decodes: bool = False  # whether images are decoded here that are files for any other source
    sidecars: Sequence[str] = ()  # names of the fields that files beside the samples' own gave
    # names of the images and boxes that belong to a sample's first image: sidecars, and those of the same record
    companions: Sequence[str] = ()
    # of an image that is not upright by its EXIF orientation: which of its pixels the labels count, those of the file
    # as stored, or as viewers show them; "stated": a label file says the size of the image, see `stated_size`
    frame: Frame = "stored"
    outside: Sequence[str] = ()  # folders above the root that an option names, such as ../masks
    holds_records: bool = False  # whether samples are records in large files, see packer.sources.records._record_source
    is_encoded: bool = False  # whether samples are there as `schema` stores them, checked when they were packed
    # whether links out of the folder are followed, see packer.sources._trees.folder_tree
    follow_links: bool = False
    is_on_disk: ClassVar[bool] = True  # False for samples of Python objects, whose `root` is a name for messages
    # why an interrupted conversion cannot go on; None where the source tells whether its samples are the same
    resume_reason: str | None = None
    _tree: FileTree | None = None
    _given: Mapping[str, Any] = _NOTHING  # what the constructor was given by name, as far as a manifest can store it

    def __new__(cls, *args: object, **options: Any) -> Self:
        """Note the options, for `asked`: the constructor is each subclass's own."""
        made = super().__new__(cls)
        plain = {name: _plain(value) for name, value in options.items()}
        made._given = {name: value for name, value in plain.items() if value is not None}
        return made

    def _open_root(self, root: "Path | FileTree", *, follow_links: bool) -> Listing:
        """Take a folder or an archive for the root, and list it; raises as `open_tree` and `scan` do."""
        self._tree = open_tree(root, follow_links=follow_links)
        self.root = self._tree.root
        self.follow_links = follow_links
        return scan(self._tree)

    @property
    def folder(self) -> FileTree:
        """The folder, whose files are read by one rule about links, or the archive."""
        if self._tree is None:
            self._tree = SourceRoot(self.root, self.follow_links)
        return self._tree

    @property
    def named(self) -> Path:
        """What the user names it by: the root, or the one file that was given."""
        return self.root

    def place(self, name: str) -> tuple[FileTree, str]:
        """The folder that the file at this relative path is read beneath, and its path in there."""
        return place(self.folder, self.outside, name)

    def original(self, stored: str) -> Path:
        """Where the file lies that a pack names so: packs leave out what leads above the folder."""
        for folder in self.outside:
            name = stored_path(folder)
            if stored.startswith(f"{name}/"):
                return self.root / (folder + stored[len(name) :])
        return self.root / stored

    def read(self, name: str, *, is_table: bool = False) -> bytes:
        """The bytes of the file at this relative path, as of a tree; raises BadInput."""
        folder, path = self.place(name)
        return folder.read(path, is_table=is_table)

    def places(self) -> Mapping[str, str]:
        """Options that name folders elsewhere -> digest of what was found there, which manifests state instead."""
        return {}

    def assumed(self) -> Mapping[str, str]:
        """Options that say what no file says, with the value that holds: manifests state them, typed or not."""
        return {}

    @classmethod
    def options(cls) -> tuple[str, ...]:
        """Names of the options that the constructor takes, in order."""
        return tuple(cls.defaults())

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """The options that the constructor takes, in order, each with its default."""
        parameters = inspect.signature(cls.__init__).parameters.values()
        return {each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY}

    def asked(self) -> dict[str, Any]:
        """What it was made with, as the manifest of a pack states it: options, sidecars, splits, see `places`."""
        places, defaults = dict(self.places()), self.defaults()
        given = {name: value for name, value in self._given.items() if defaults.get(name, value) != value}
        return {
            "kind": self.kind,
            "options": {**self.assumed(), **{name: value for name, value in given.items() if name not in places}},
            "sidecars": [],
            **({"places": places} if places else {}),
            "splits": {},
        }

    @abstractmethod
    def __len__(self) -> int:
        """Number of samples."""

    @abstractmethod
    def __getitem__(self, index: int) -> Sample:
        """The sample, every field of `schema` in it; raises BadInput, IndexError."""

    @abstractmethod
    def key(self, index: int) -> str:
        """The sample's unique text id."""

    @abstractmethod
    def files(self, index: int) -> tuple[Path, ...]:
        """Every file that `source[index]` reads, the main one first; none of a Python object."""

    def file_names(self, index: int) -> tuple[str, ...]:
        """The relative POSIX paths of these files, as `read` takes them."""
        root = str(self.folder.root)
        return tuple(relative_name(path, root) for path in self.files(index))

    def extent(self, index: int) -> Extent | None:
        """Where the sample's record lies in its file; None where its files hold nothing else."""
        return None

    def more_files(self) -> Sequence[str]:
        """Relative paths of large files that hold values of many samples, besides those that `extent` names."""
        return ()

    def where(self, index: int, path: str | None = None) -> str:
        """What a message names a sample by: the file, of one of its fields if given as the field `files` has it."""
        return str(self.files(index)[0] if path is None else self.original(path))

    def content(self, index: int, name: str, path: str) -> Any:
        """What lies in the source where a pack's field `files` names `path` for a field, to compare with; BadInput."""
        return self.read(path)

    @classmethod
    def recognize(cls, tree: FileTree, names: Sequence[str]) -> str | None:
        """Return a line on what was recognized; None if these files are not a data set of this source.

        Args:
            tree: A folder or an archive.
            names: The relative paths of its files; of a lone file, its name alone.
        """
        return None

    @abstractmethod
    def stem(self, index: int) -> Path:
        """The path that the sample's files begin with; a sidecar is `stem + suffix`."""

    def value(self, index: int, name: str) -> Any:
        """One field of a sample; reads no more of its files than needed. Raises as `source[index]` does."""
        return self[index][name]

    def image_size(self, index: int, name: str) -> tuple[int, int]:
        """Height and width in px of an image as it is in the source; raises as `source[index]` does."""
        from packer.images import sniff  # NumPy, which listing a folder does without

        value = self.value(index, name)
        if isinstance(value, bytes):
            header = sniff(value, MOST_PIXELS)
            return header.height, header.width
        return value.shape[0], value.shape[1]

    def stated_size(self, index: int) -> tuple[int, int] | None:
        """Height and width in px that the sample's labels say of its image; None where they say none."""
        return None

    def provenance(self) -> Provenance | None:
        """What is known of the samples without reading them; None where files must be asked."""
        return None

    def probes(self) -> Sequence[int]:
        """The samples that are looked at before any is packed, at most 16."""
        return probe_indices(len(self))

    def subset(self, rows: Sequence[int]) -> "Source | None":
        """The samples of these rows, where the source makes such a one itself; None where it is to be wrapped."""
        return None

    def tables(self) -> tuple[Path, ...]:
        """Every file that was read when the source was made: lists that say something of many samples."""
        return ()

    def extras(self) -> Sequence[str]:
        """Relative POSIX paths of what else lies in the folder and belongs to the set, though to no sample of it."""
        return ()

    def extra_sizes(self) -> Mapping[str, int] | None:
        """Bytes of each of the extras where the source knows them; None where the file system must be asked."""
        return None

    def read_extras(self, names: Sequence[str]) -> Iterator[Buffer]:
        """The bytes of some of the extras, in the order of `names`; raises BadInput."""
        return (self.read(name, is_table=True) for name in names)

    def missing(self, index: int) -> str | None:
        """Why the sample is incomplete (an annotation that is not there), None where it is whole."""
        self.checked(index)
        return None

    def checked(self, index: int) -> int:
        """The index itself; raises BadIndex outside 0 ... len - 1."""
        if not 0 <= index < len(self):
            raise BadIndex(f"{self.root}: no sample {index}; there are {len(self)}, counted from 0")
        return index


def place(folder: FileTree, outside: Sequence[str], name: str) -> tuple[FileTree, str]:
    """The folder that a file is read beneath, and its path in there.

    outside: folders above, such as `../masks`, whose files have such names.
    """
    for above in outside:
        if name.startswith(f"{above}/"):
            return folder.above(above), name[len(above) + 1 :]
    return folder, name


def probe_indices(count: int) -> list[int]:
    """At most 16 numbers spread evenly over so many."""
    return sorted({number * count // MOST_PROBES for number in range(MOST_PROBES)})


def probed_mask_dtype(source: Source, name: str) -> str:
    """What the files of a mask tell: uint16 where one of a few samples has 16 bit."""
    from packer.images import sniff  # NumPy and decoders, which listing a folder does without

    for index in probe_indices(len(source)):
        try:
            if sniff(source.value(index, name), MOST_PIXELS).bits > 8:
                return "uint16"
        except (BadInput, DamagedImage):
            continue  # reading the sample says more
    return "uint8"


def relative_name(path: Path, root: str) -> str:
    """The path of a file from the folder of a data set; it leads above that for one beside it."""
    text = str(path)
    return text[len(root) + 1 :] if text.startswith(f"{root}/") else os.path.relpath(text, root)


def _plain(value: object) -> str | int | tuple[str, ...] | None:
    """The value of an option as a manifest stores it; None for what is none."""
    if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        return tuple(value)
    return value if isinstance(value, str | int) else None


def check_choice(option: str, value: str, choices: Sequence[str]) -> None:
    """Raises InvalidRequest for a value that the option does not have."""
    if value not in choices:
        raise InvalidRequest(f"option {option}: unknown value {value!r}; expected one of {', '.join(choices)}")
