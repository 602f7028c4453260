"""text: str as UTF-8. Lone surrogates stand for bytes that are no UTF-8, so that any file name comes back as it was."""

from typing import Any

from packer.codecs import base
from packer.errors import BadInput, InvalidRequest
from packer.geometry import View
from packer.images import DEFAULT_OPTIONS, DecodeOptions, Header
from packer.schema import Field


class Codec(base.Codec):
    """See the module and packer.codecs.base."""

    kinds = ("text",)
    verbatim = True  # it is UTF-8 in the file too

    def __init__(self, field: Field, options: DecodeOptions = DEFAULT_OPTIONS) -> None:
        super().__init__(field, options)
        if self.argument is not None:
            raise InvalidRequest(f"field {field.name!r}: codec 'text' takes no argument, found {self.argument!r}")

    def encode(self, value: Any) -> bytes:
        """UTF-8, with surrogateescape (PEP 383); raises BadInput for surrogates that stand for no byte."""
        if not isinstance(value, str):
            raise InvalidRequest(f"field {self.field.name!r}: codec 'text' holds str, found {type(value).__name__}")
        try:
            data = value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise BadInput(f"text {value!r:.60} cannot be UTF-8: {error.reason}; replace the character") from error
        if data.decode("utf-8", "surrogateescape") != value:
            raise BadInput(f"text {value!r:.60} spells a character in surrogates; write the character itself")
        return data

    def decode(
        self, buffer: base.Buffer, view: View | None = None, out: Any = None, *, header: Header | None = None
    ) -> Any:
        """The str; every sequence of bytes is one."""
        if view is not None or out is not None:
            raise InvalidRequest(f"field {self.field.name!r}: text has no pixels; ask without a view and without out")
        return str(buffer, "utf-8", "surrogateescape")
