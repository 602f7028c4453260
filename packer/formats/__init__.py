"""Formats: one module each, which writes and reads the records of a part. packer.formats.base is the contract."""

from packer.registry import Registry

registry = Registry(__name__, __path__[0], "format")
names = registry.names
load = registry.load
