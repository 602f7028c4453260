"""json: canonical JSON (sorted keys, no spaces, UTF-8, no NaN), so that equal values have equal bytes."""

import json
from typing import Any

from packer.codecs import base
from packer.errors import BadInput, CorruptRecord, InvalidRequest
from packer.geometry import View
from packer.images import Header
from packer.layouts.json_text import json_value


class Codec(base.Codec):
    """Stores a value as JSON."""

    kinds = ("json",)
    takes_argument = False
    suffixes = (".json",)

    def encode(self, value: Any) -> bytes:
        """Return the value as JSON. Raises BadInput if JSON changes it: tuples, NaN, and keys that are not str."""
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
            data = text.encode("utf-8", "surrogateescape")
            back = _parse(data)
        except (TypeError, ValueError, RecursionError) as error:
            raise BadInput(f"value cannot be JSON: {error}; use only what JSON has") from error
        if back != value:
            raise BadInput("value does not come back equal from JSON; use str keys, and lists instead of tuples")
        return data

    def decode(
        self, buffer: base.Buffer, view: View | None = None, out: Any = None, *, header: Header | None = None
    ) -> Any:
        """Return the value. Raises CorruptRecord if it is not JSON, repeats a key, or contains NaN or infinity."""
        if view is not None or out is not None:
            raise InvalidRequest(f"field {self.field.name!r}: json has no pixels; ask without a view and without out")
        try:
            return _parse(buffer)
        except (ValueError, RecursionError) as error:
            raise CorruptRecord(
                f"field {self.field.name!r}: not the JSON that was packed: {error}; pack again from the source"
            ) from error


def _parse(buffer: base.Buffer) -> Any:
    return json_value(str(buffer, "utf-8", "surrogateescape"))
