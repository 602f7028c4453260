"""Format: the records of one part <-> one file, or one folder of files. Knows nothing of pixels, labels or torch.

A format module has `SUFFIX`, `class Writer(base.Writer)` and `class Reader(base.Reader)`:

* A Writer makes a new file; it refuses an existing one. Records arrive in order, every field of the schema in each.
  A part without `finish()` is not complete; `close()` alone never makes it look so. Both may be called twice; what is
  asked of a Writer that was closed before it was finished raises InvalidRequest.
* A part says itself which fields it holds, in order, and how many samples: `_columns` has `end_record` for the
  Writer, and `check_end` for the Reader, which raises CorruptPack where the manifest says anything else.
* The same records give the same bytes, whatever the time, process or machine.
* A Reader never writes, needs no write permission and leaves nothing beside the part. `read` may be called by many
  threads at once. A buffer that it returns is valid while the reader is open: codecs copy out of it.
* A Reader that raises while it opens a part holds no file open: `_columns` has `opening`, which turns an OSError
  into packer's, and `mapping`, which unmaps the file when the block fails.
* A reader checks what it relies on and raises CorruptPack; it never returns bytes of another record. Flipped bytes
  inside a value are the business of the index's crc32.
* A field's codec is none of a format's business. What a format may want to know of the encoded values,
  `schema.stored_form(name)` says: whether all are numbers of one fixed shape, and which file suffix fits one.
* What a format would like to hold, and how it takes its place on the disk, is said by class members of Writer and
  Reader, each with the default of a part that is one file and takes any value.
* A format of another tool, whose files that tool opens by path, has `slots`: what its records have a name for. Which
  field goes there `Field.slot` says, so that Writer and Reader need to be told nothing besides the schema.
  `_foreign_part` is the base of all of them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

from packer.schema import Buffer as Buffer
from packer.schema import Field, Schema

Record = Mapping[str, Buffer]
Order = Literal["stored", "shuffled"]


class Slot(NamedTuple):
    """What the records of another tool have a name for, such as `image` and `label`.

    what: the fields that fit, in words. fits: whether one does. is_needed: whether a pack without one is refused.
    is_file: whether the tool takes what is stored for an image file, which raw pixels are not.
    """

    name: str
    what: str
    fits: Callable[[Field], bool]
    is_needed: bool = False
    is_file: bool = False


class Writer(ABC):
    """Writes one part; see the module's contract.

    codecs: by kind, the codec that a field gets where the user names none, instead of what the source has.
    instead_of_raw: by kind, the codec of images that would be stored as raw pixels though nobody asked for that,
      because they are resized or stand in records of files: of formats of other tools, which open files.
    one_shape: whether images that have their codec from `codecs` are all of one shape, which the plan settles; it
      refuses those that differ.
    one_part: whether a pack is one part unless the user asks for parts of a size.
    slots: of a format of another tool, what its records have names for; empty for packer's own formats.
    labels: of the whole numbers in the slot label, those that the records hold; others are misfits.
    order: in which samples are packed unless the user says it: as the source has them, or shuffled, for tools that
      read in the order of the file.
    has_thread: whether records are written by a thread of the Writer's own, so that `write` is soon done.
    """

    codecs: ClassVar[Mapping[str, str]] = {}
    instead_of_raw: ClassVar[Mapping[str, str]] = {}
    one_shape: ClassVar[bool] = False
    one_part: ClassVar[bool] = False
    slots: ClassVar[tuple[Slot, ...]] = ()
    labels: ClassVar[range] = range(-(1 << 63), 1 << 63)
    order: ClassVar[Order] = "stored"
    has_thread: ClassVar[bool] = False

    @classmethod
    def codec_of(cls, field: Field) -> str | None:
        """The codec that a field of a source gets where the user names none; None for the one that it has."""
        return cls.codecs.get(field.kind)

    @classmethod
    def images_of_tool(cls, schema: Schema) -> tuple[str, ...]:
        """The image fields that stand in the records of the part's own tool, which opens files there."""
        return ()

    @classmethod
    def notes(cls, schema: Schema) -> tuple[str, ...]:
        """What to tell the user of what the part's own tool will find in it, a line each."""
        return ()

    @classmethod
    def refusal(cls, schema: Schema) -> str | None:
        """Why no pack of these fields is made: the part's own tool would find something that they are not."""
        return None

    @classmethod
    def misfit(cls, schema: Schema, record: Record) -> tuple[str, str] | None:
        """A field of a record that the part's own tool cannot hold, and why; None where it holds all of them."""
        return None

    @classmethod
    def files(cls, schema: Schema) -> int:
        """How many files each sample takes, besides those of the part itself."""
        return 0

    def __init__(self, path: Path, schema: Schema, *, payload_bytes: int) -> None:
        """payload_bytes: about how many bytes of values will come, for formats that reserve space."""
        self.path = path
        self.schema = schema

    @classmethod
    def part_bytes(cls, payload_bytes: int, values: int) -> int:
        """About how large a part is that holds so many bytes in so many values."""
        return payload_bytes

    @classmethod
    def scratch_bytes(cls, payload_bytes: int) -> int:
        """Disk space that a part of so many bytes of values takes beside its own file, until it is finished."""
        return 0

    @abstractmethod
    def write(self, record: Record) -> None:
        """Append one record; raises StorageError."""

    @abstractmethod
    def finish(self) -> None:
        """Complete the part and close it; the caller syncs it to disk. Raises StorageError."""

    @abstractmethod
    def close(self) -> None:
        """Give everything back; a part that is not finished stays incomplete."""

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class Reader(ABC):
    """Reads one part; see the module's contract.

    is_folder: whether a part is a folder. Then its size and digest are those of all files in it (files/digest.py), and
      the size of each file is compared when it is read or mapped.
    is_mapped: whether records are views of mapped files; otherwise each is read into memory of its own.
    """

    is_folder: ClassVar[bool] = False
    is_mapped: ClassVar[bool] = True

    @classmethod
    def side_files(cls, schema: Schema) -> Sequence[str]:
        """Files of a part that is a folder from which no value is read, such as a tool's own index."""
        return ()

    def __init__(self, path: Path, schema: Schema, *, samples: int, readahead: bool = True) -> None:
        """samples: how many records the manifest says that the part holds; raises CorruptPack where it does not.

        readahead: whether the kernel may read ahead; False suits random reads of packs larger than memory.
        """
        self.path = path
        self.schema = schema
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    @abstractmethod
    def read(self, row: int, names: Sequence[str]) -> Record:
        """The named fields of one record; raises CorruptPack."""

    def values(self, rows: Sequence[int], name: str) -> Sequence[Buffer]:
        """One field of many records; raises CorruptPack."""
        return [self.read(row, (name,))[name] for row in rows]

    def files(self) -> Iterator[bytes]:
        """The relative path of every file of a part that is a folder; raises CorruptPack."""
        return iter(())

    @abstractmethod
    def close(self) -> None:
        """Give everything back; may be called twice, and while buffers that were read still live."""
