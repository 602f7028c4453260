"""Formats: records <-> one part, one module per format; packer.formats.base describes the contract."""

from packer.registry import Registry

registry = Registry(__name__, __path__[0], "format")
names = registry.names
load = registry.load
