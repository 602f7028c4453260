"""Foreign record slots: which field becomes the picture, and which the label, of another tool's records.

As the user says it, such as `--slot image=rgb`, or as is plain: the field of the slot's name, else the only one that
fits.
"""

from collections.abc import Sequence
from dataclasses import replace

from packer.errors import InvalidRequest
from packer.formats.base import Slot
from packer.schema import Field, Schema

_NOT_CLASSES = ("split",)  # a number with classes, but no label


def with_slots(schema: Schema, slots: Sequence[Slot], asked: Sequence[tuple[str, str]], *, to: str) -> Schema:
    """The schema with the slot of each field that has one; raises InvalidRequest.

    slots: those of the format `to`. asked: (slot, field) pairs. Where nobody asked, a slot takes the one field that it
    is plainly for: of several pictures, say, none.
    """
    chosen = _asked(schema, slots, asked, to=to)
    for slot in slots:
        if slot.name in chosen:
            continue
        fitting = [field for field in schema if slot.fits(field) and field.name not in chosen.values()]
        plain = _plain(slot, fitting)
        if plain is not None:
            chosen[slot.name] = plain.name
        elif slot.is_needed:
            names = ", ".join(field.name for field in fitting)
            raise InvalidRequest(
                f"--to {to} needs {slot.what} as its {slot.name}; "
                + (f"say which: --slot {slot.name}=FIELD, of {names}" if names else "the source has no such field")
            )
    of_field = {field: slot for slot, field in chosen.items()}
    return Schema(tuple(replace(field, slot=of_field.get(field.name)) for field in schema))


def _asked(schema: Schema, slots: Sequence[Slot], asked: Sequence[tuple[str, str]], *, to: str) -> dict[str, str]:
    known = {slot.name: slot for slot in slots}
    chosen: dict[str, str] = {}
    for name, field in asked:
        if name not in known:
            has = f"it has: {', '.join(known)}" if known else "slots are for the formats of other tools"
            raise InvalidRequest(f"--slot {name}={field}: format {to!r} has no slot {name!r}; {has}")
        if field not in schema:
            raise InvalidRequest(
                f"--slot {name}={field}: no field {field!r}; there are: {', '.join(schema.names):.500}"
            )
        if not known[name].fits(schema[field]):
            raise InvalidRequest(
                f"--slot {name}={field}: {field} is {_described(schema[field])}, expected {known[name].what}"
            )
        if field in chosen.values():
            raise InvalidRequest(f"--slot {name}={field}: {field} has a slot already; name another field")
        chosen[name] = field
    return chosen


def _plain(slot: Slot, fitting: Sequence[Field]) -> Field | None:
    """The field that a slot is plainly for: of that name, else the only one; a number only where it has classes."""
    visible = [field for field in fitting if not field.hidden]
    for field in visible:
        if field.name == slot.name:
            return field
    likely = [
        field for field in visible if field.kind != "number" or (field.classes and field.name not in _NOT_CLASSES)
    ]
    return likely[0] if len(likely) == 1 else None


def _described(field: Field) -> str:
    numbers = f" {field.dtype} of shape {field.shape}" if field.kind == "number" else ""
    return f"a field of kind {field.kind}{numbers}"
