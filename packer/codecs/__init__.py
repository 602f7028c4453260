"""Codecs: value <-> bytes, one module per codec; packer.codecs.base describes the contract."""

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
    """Return the class of a field's codec; raises InvalidRequest for an unknown codec, and MissingPackage."""
    found: type[Codec] = load(field.codec_name).Codec
    return found


def make(field: Field) -> "Codec":
    """Return the codec of a field, with default options for decoding; raises InvalidRequest."""
    return codec_class(field)(field)


def stored_form(field: Field) -> StoredForm:
    """Return the form of a field's encoded values; raises InvalidRequest for an unknown codec."""
    return codec_class(field).stored_form(field)


def described(schema: Schema) -> Schema:
    """Return a copy of the schema for formats: its `stored_form` describes the encoded values of each field."""
    return replace(schema, form_of=stored_form)
