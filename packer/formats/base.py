"""Format: the records of one part <-> one file, or one folder of files. It does not depend on codecs, images or torch.

A format module has `SUFFIX`, `class Writer(base.Writer)` and `class Reader(base.Reader)`. Most formats derive from the
base of their family: `_columns` (arrays in a container), `_folder_part` (folders of files), or `_foreign_part` (files
of another tool). The contract:

* A Writer makes a new file or folder, and refuses an existing one. Records arrive in order, with every field of the
  schema. A part without `finish()` is incomplete and never looks complete. `finish` and `close` may be called twice. A
  call on a closed Writer raises InvalidRequest.
* A part contains the names of its fields, in order, and its number of samples. The Reader raises CorruptPack if they
  differ from the manifest; see `_columns.end_record` and `_columns.check_end`.
* Equal records give equal bytes, at any time, in any process, on any machine.
* A Reader needs no write permission and creates no file. `read` is thread-safe. Buffers that it returns are valid while
  the reader is open; codecs copy them.
* A Reader that raises while it opens a part leaves no file open; see `_columns.opening` and `_columns.mapping`.
* A Reader validates what it relies on and raises CorruptPack; it never returns bytes of another record. The crc32 in
  the index detects flipped bytes inside a value.
* A format does not depend on a field's codec: `schema.stored_form(name)` describes the encoded values.
* Class attributes of Writer and Reader declare preferred codecs and the form on disk. Defaults suit a part that is one
  file and holds any value.
* `Field.slot` determines which field another tool's records contain as image or label.
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
    """A name in the records of another tool, such as `image` and `label`.

    Attributes:
        name: The name.
        what: Description of the fields that fit.
        fits: Returns True for a field that fits.
        is_needed: A pack without a field for it is refused.
        is_file: The tool opens the stored value as an image file, so raw pixels do not fit.
    """

    name: str
    what: str
    fits: Callable[[Field], bool]
    is_needed: bool = False
    is_file: bool = False


class Writer(ABC):
    """Writes one part; the module describes the contract.

    Attributes:
        codecs: For each kind, the codec of fields if the user names none; other kinds keep the codec of the source.
        instead_of_raw: For each kind, the codec of images that would be stored as raw pixels without a request of the
            user. Formats of other tools set it, because these tools open files.
        one_shape: Images with the codec of `codecs` must all have one shape; the plan refuses others.
        one_part: A pack is one part unless the user sets the size of parts.
        slots: The names in the other tool's records; empty for packer's own formats.
        labels: The whole numbers that the slot label holds.
        order: Default order of samples: "stored" (that of the source), or "shuffled" for tools that read in file order.
        has_thread: The Writer has a thread that writes records, so `write` returns early.
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
        """Return the codec of a field if the user names none, or None to keep the codec of the source."""
        return cls.codecs.get(field.kind)

    @classmethod
    def images_of_tool(cls, schema: Schema) -> tuple[str, ...]:
        """Return the image fields in the records of the other tool, which opens them as files."""
        return ()

    @classmethod
    def notes(cls, schema: Schema) -> tuple[str, ...]:
        """Return notes for the user, one line each, on what the other tool finds in the part."""
        return ()

    @classmethod
    def refusal(cls, schema: Schema) -> str | None:
        """Return why the format refuses these fields, or None if it accepts them."""
        return None

    @classmethod
    def misfit(cls, schema: Schema, record: Record) -> tuple[str, str] | None:
        """Return a field of a record that the other tool cannot hold, and the reason; None if every field fits."""
        return None

    @classmethod
    def files(cls, schema: Schema) -> int:
        """Return the number of files per sample, in addition to those of the part itself."""
        return 0

    def __init__(self, path: Path, schema: Schema, *, payload_bytes: int) -> None:
        """Make the part.

        Args:
            path: The new file or folder.
            schema: The fields of every record.
            payload_bytes: About how many bytes of values will be written, for formats that reserve space.
        """
        self.path = path
        self.schema = schema

    @classmethod
    def part_bytes(cls, payload_bytes: int, values: int) -> int:
        """Return about how large a part with this many values of `payload_bytes` in total is."""
        return payload_bytes

    @classmethod
    def scratch_bytes(cls, payload_bytes: int) -> int:
        """Return the disk space that writing a part needs until it is finished, in addition to the part itself."""
        return 0

    @abstractmethod
    def write(self, record: Record) -> None:
        """Append one record; raises StorageError."""

    @abstractmethod
    def finish(self) -> None:
        """Complete the part and close it; the caller syncs it to disk. Raises StorageError."""

    @abstractmethod
    def close(self) -> None:
        """Release everything; a part that is not finished stays incomplete."""

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class Reader(ABC):
    """Reads one part; the module describes the contract.

    Attributes:
        is_folder: A part is a folder. Its size and digest are those of all files in it (packer.files.digest). The size
            of each file is compared when it is read or mapped.
        is_mapped: Records are views of mapped files; otherwise each is copied into memory.
    """

    is_folder: ClassVar[bool] = False
    is_mapped: ClassVar[bool] = True

    @classmethod
    def side_files(cls, schema: Schema) -> Sequence[str]:
        """Return the files of a folder part from which no value is read, such as a tool's own index."""
        return ()

    def __init__(self, path: Path, schema: Schema, *, samples: int, readahead: bool = True) -> None:
        """Open the part; raises CorruptPack unless it matches the manifest.

        Args:
            path: The file or folder.
            schema: The fields of the manifest.
            samples: The number of records in the manifest.
            readahead: Whether the kernel may read ahead; False suits random reads of packs larger than memory.
        """
        self.path = path
        self.schema = schema
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    @abstractmethod
    def read(self, row: int, names: Sequence[str]) -> Record:
        """Return the named fields of one record; raises CorruptPack."""

    def values(self, rows: Sequence[int], name: str) -> Sequence[Buffer]:
        """Return one field of many records; raises CorruptPack."""
        return [self.read(row, (name,))[name] for row in rows]

    def files(self) -> Iterator[bytes]:
        """Yield the relative path of every file of a folder part; raises CorruptPack."""
        return iter(())

    @abstractmethod
    def close(self) -> None:
        """Release everything; may be called twice, and while returned buffers are in use."""
