"""Codecs: convert values to bytes and back, one module per codec. packer.codecs.base describes their contract."""

from dataclasses import replace
from typing import TYPE_CHECKING

from packer.registry import Registry
from packer.schema import Field, Schema, StoredForm, parse_codec

if TYPE_CHECKING:
    from packer.codecs.base import Codec

registry = Registry(__name__, __path__[0], "codec")
names = registry.names
load = registry.load


def check(text: str) -> None:
    """Raise InvalidRequest if a text such as "png" or "jpeg:95" names an unknown codec. Codecs are not imported."""
    registry.check(parse_codec(text)[0])


def codec_class(field: Field) -> "type[Codec]":
    """Return the class of a field's codec. Raises InvalidRequest for an unknown codec, and MissingPackage."""
    found: type[Codec] = load(field.codec_name).Codec
    return found


def make(field: Field) -> "Codec":
    """Return the codec of a field, with default decoding options. Raises InvalidRequest if it cannot hold the field."""
    return codec_class(field)(field)


def stored_form(field: Field) -> StoredForm:
    """Return the byte layout of a field's encoded values. Raises InvalidRequest for an unknown codec."""
    return codec_class(field).stored_form(field)


def described(schema: Schema) -> Schema:
    """Return a copy of the schema for formats, whose `form_of` returns the byte layout of a field's encoded values."""
    return replace(schema, form_of=stored_form)
