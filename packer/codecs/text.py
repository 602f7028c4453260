"""text: str as UTF-8. Bytes that are not UTF-8 are lone surrogates in the str (PEP 383), so that any file name fits."""

from typing import Any

from packer.codecs import base
from packer.errors import BadInput, InvalidRequest
from packer.geometry import View
from packer.images import Header


class Codec(base.Codec):
    """Stores a text as UTF-8."""

    kinds = ("text",)
    takes_argument = False
    verbatim = True  # the file is UTF-8 too

    def encode(self, value: Any) -> bytes:
        """Return UTF-8. Surrogates of PEP 383 become the original bytes. Other surrogates raise BadInput."""
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
        """Return the str. Every sequence of bytes is valid."""
        if view is not None or out is not None:
            raise InvalidRequest(f"field {self.field.name!r}: text has no pixels; ask without a view and without out")
        return str(buffer, "utf-8", "surrogateescape")
