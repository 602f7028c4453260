"""Format: writes and reads the records of one part, which is a file or a folder of files.

A format module has `SUFFIX`, `class Writer(base.Writer)` and `class Reader(base.Reader)`. Most formats derive from the
base of their family: `_columns` (arrays in a container file), `_folder_part` (folders of files), or `_foreign_part`
(files of another tool). A format does not depend on images or torch.

Writing a part:

* The constructor of a Writer creates a new file or folder. It raises InvalidRequest if the path exists.
* `write` gets the records in the order of the rows. Each record contains every field of the schema.
* A part is incomplete until `finish` returns. No Reader opens an incomplete part.
* `finish` and `close` may be called twice. `finish` raises InvalidRequest if `close` was called first.
* Equal records give equal bytes, at any time, in any process, on any machine.
* If `write` raises KeyError or InvalidRequest, it has added nothing, and the next `write` continues. After any other
  error, only `close` may be called.
* A failed disk write raises StorageError. `_columns.writing` converts an OSError: the message contains the path and
  `os.strerror(error.errno)`, because some libraries put a long report into `error.strerror`.

Reading a part:

* A Reader needs no write permission and creates no file. `read` and `values` are thread-safe. They return buffers that
  are valid while the reader is open; codecs copy the buffers.
* A part contains the names of its fields, in order, and its number of samples. The Reader compares both with the
  manifest; see `_columns.end_record` and `_columns.check_end`.
* To refuse a part, the Reader raises CorruptPack with the path, what was expected, what was found, and "copy or pack it
  again". If the machine caused the error, it raises StorageError; `_columns.opening` distinguishes the two.
* A Reader checks every offset and size before it uses them. It never returns bytes of another record. The crc32 in the
  index detects flipped bytes inside a value.
* A constructor that raises leaves no file open; see `_columns.opening` and `_columns.mapping`.
* A forked child calls `close` on the readers that it inherited. `close` therefore does not wait for a lock. Writers are
  not used across a fork.

A format does not depend on a field's codec: `schema.stored_form(name)` describes the encoded values. A *slot* is a name
in the records of another tool, such as image or label. `Field.slot` is the slot of a field, or None.
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
        what: Description of the fields that may have this name, for messages.
        fits: Returns True for a field that may have this name.
        is_needed: True if each record needs a field of this name. A pack without this field is then refused.
        is_file: True if the tool opens the stored value as an image file. The tool cannot open raw pixels.
    """

    name: str
    what: str
    fits: Callable[[Field], bool]
    is_needed: bool = False
    is_file: bool = False


class Writer(ABC):
    """Writes one part. The docstring of this module describes what each method must do.

    Attributes:
        codecs: Default codecs: kind of field -> codec. A field of another kind keeps the codec of the source.
        instead_of_raw: Kind of field -> the codec that replaces the codec raw, unless the user requests raw. Formats of
            other tools set it, because these tools open image files.
        one_shape: True if all images of a field with the codec of `codecs` must have one shape.
        one_part: True if a pack is one part unless the user sets the size of parts.
        slots: The names in the other tool's records; empty for packer's own formats.
        labels: The whole numbers that the slot `label` accepts.
        order: Default order of samples: "stored" (that of the source), or "shuffled" for tools that read in file order.
    """

    codecs: ClassVar[Mapping[str, str]] = {}
    instead_of_raw: ClassVar[Mapping[str, str]] = {}
    one_shape: ClassVar[bool] = False
    one_part: ClassVar[bool] = False
    slots: ClassVar[tuple[Slot, ...]] = ()
    labels: ClassVar[range] = range(-(1 << 63), 1 << 63)
    order: ClassVar[Order] = "stored"

    @classmethod
    def codec_of(cls, field: Field) -> str | None:
        """Return the codec of a field for which the user names none. None keeps the codec of the source."""
        return cls.codecs.get(field.kind)

    @classmethod
    def images_of_tool(cls, schema: Schema) -> tuple[str, ...]:
        """Return the names of the fields that the other tool opens as image files. Default: none."""
        return ()

    @classmethod
    def notes(cls, schema: Schema) -> tuple[str, ...]:
        """Return notes for the user, one line each, on what the other tool reads of the part. Default: none."""
        return ()

    @classmethod
    def refusal(cls, schema: Schema) -> str | None:
        """Return why the format refuses these fields, or None if it accepts them."""
        return None

    @classmethod
    def misfit(cls, schema: Schema, record: Record) -> tuple[str, str] | None:
        """If a value does not fit into the tool's record, return the name of its field and the reason, else None."""
        return None

    @classmethod
    def files(cls, schema: Schema) -> int:
        """Return the number of files that each sample adds to the part; 0 if samples share files."""
        return 0

    def __init__(self, path: Path, schema: Schema, *, payload_bytes: int) -> None:
        """Create the part. Raises StorageError, and InvalidRequest if the path exists.

        Args:
            path: The new file or folder.
            schema: The fields of every record.
            payload_bytes: Estimated size of all values, for formats that reserve space.
        """
        self.path = path
        self.schema = schema

    @classmethod
    def part_bytes(cls, payload_bytes: int, values: int) -> int:
        """Return the estimated size of a part in bytes.

        Args:
            payload_bytes: Size of all values together.
            values: Number of large values, such as images, to which a format may add bytes.
        """
        return payload_bytes

    @classmethod
    def scratch_bytes(cls, payload_bytes: int) -> int:
        """Return the estimated size in bytes of the temporary files that exist until the part is finished."""
        return 0

    @abstractmethod
    def write(self, record: Record) -> None:
        """Append one record. Its buffers may be reused afterwards. Raises InvalidRequest, StorageError."""

    @abstractmethod
    def finish(self) -> None:
        """Complete and close the part, without a sync to disk. Raises InvalidRequest, StorageError."""

    @abstractmethod
    def close(self) -> None:
        """Release files, memory and threads. A part that is not finished stays incomplete."""

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class Reader(ABC):
    """Reads one part. The docstring of this module describes what each method must do.

    Attributes:
        is_folder: True if a part is a folder. Its size and digest are those of all its files (packer.files.digest). The
            Reader compares the size of a file when it reads or maps the file.
        main_file: In a folder, the file that is mapped while the Reader is open. Its inode identifies the part, also
            after `packer append` replaced the folder by a folder of hard links.
        is_mapped: True if `read` returns slices of mapped files, which costs no memory. False if `read` copies values
            into memory; batch decoders then read fewer samples ahead.
    """

    is_folder: ClassVar[bool] = False
    main_file: ClassVar[str] = ""
    is_mapped: ClassVar[bool] = True

    @classmethod
    def side_files(cls, schema: Schema) -> Sequence[str]:
        """Return relative paths of files of a folder part without values, such as a tool's index. Default: none."""
        return ()

    def __init__(self, path: Path, schema: Schema, *, samples: int, readahead: bool = True) -> None:
        """Open the part. Raises StorageError, and CorruptPack if the part does not match the manifest.

        Args:
            path: The file or folder.
            schema: The fields of the manifest.
            samples: The number of records in the manifest.
            readahead: True if the kernel may read ahead. False suits random reads of packs larger than memory.
        """
        self.path = path
        self.schema = schema
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    @abstractmethod
    def read(self, row: int, names: Sequence[str]) -> Record:
        """Return the named fields of record `row`, 0 <= row < samples. Raises CorruptPack; InvalidRequest if closed."""

    def values(self, rows: Sequence[int], name: str) -> Sequence[Buffer]:
        """Return the field `name` of many records, in the order of `rows`. Raises the errors of `read`."""
        return [self.read(row, (name,))[name] for row in rows]

    def files(self) -> Iterator[bytes]:
        """Yield the path of every file of a folder part, relative to the part. Raises CorruptPack."""
        return iter(())

    @abstractmethod
    def close(self) -> None:
        """Release files and memory. Returned buffers stay usable. A second call does nothing."""
