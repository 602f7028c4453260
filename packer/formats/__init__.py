"""Formats: records <-> one file. One file each; see base.py for the contract."""

from packer.registry import Registry

registry = Registry(__name__, __path__[0], "format")
names = registry.names
load = registry.load
