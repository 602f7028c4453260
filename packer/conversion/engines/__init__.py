"""Engines, which build the parts of a conversion. Each file contains one engine; see base.py."""

from packer.registry import Registry

registry = Registry(__name__, __path__[0], "engine")
names = registry.names
load = registry.load
