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
    """Raise InvalidRequest for an unknown codec, with or without argument, without importing codecs."""
    registry.check(parse_codec(text)[0])


def codec_class(field: Field) -> "type[Codec]":
    """Return the class of a field's codec; raises InvalidRequest for an unknown one, MissingPackage."""
    found: type[Codec] = load(field.codec_name).Codec
    return found


def make(field: Field) -> "Codec":
    """Return the codec of a field, with default options for decoding; raises InvalidRequest."""
    return codec_class(field)(field)


def stored_form(field: Field) -> StoredForm:
    """Return the form of a field's encoded values; raises InvalidRequest for an unknown codec."""
    return codec_class(field).stored_form(field)


def described(schema: Schema) -> Schema:
    """Return the schema for formats, which adds the form of encoded values."""
    return replace(schema, form_of=stored_form)
