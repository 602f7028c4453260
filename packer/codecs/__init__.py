"""Codecs: value <-> bytes. One file each; see base.py for the contract."""

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
    """Raise InvalidRequest for a codec, with or without argument, whose name is not there. Imports nothing."""
    registry.check(parse_codec(text)[0])


def codec_class(field: Field) -> "type[Codec]":
    """The class behind a field's codec; raises InvalidRequest for an unknown one, MissingPackage."""
    found: type[Codec] = load(field.codec_name).Codec
    return found


def make(field: Field) -> "Codec":
    """The codec of a field, with a decoder as it is unless a data set asks for another; raises InvalidRequest."""
    return codec_class(field)(field)


def stored_form(field: Field) -> StoredForm:
    """What the encoded values of a field are, for formats; raises InvalidRequest for an unknown codec."""
    return codec_class(field).stored_form(field)


def described(schema: Schema) -> Schema:
    """The schema as formats take it: each codec is asked for its form, when a format needs to know it."""
    return replace(schema, form_of=stored_form)
