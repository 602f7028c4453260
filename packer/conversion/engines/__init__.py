"""Engines: what builds the parts of a conversion. One file each; see base.py for the contract."""

from packer.registry import Registry

registry = Registry(__name__, __path__[0], "engine")
names = registry.names
load = registry.load
