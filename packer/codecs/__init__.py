"""Codecs: value <-> bytes. One file each; see base.py for the contract."""

from packer.registry import Registry

registry = Registry(__name__, __path__[0], "codec")
names = registry.names
load = registry.load
