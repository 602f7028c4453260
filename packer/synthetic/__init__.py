"""Synthetic data sets: pictures drawn from a seed, in the layouts of the real sets. One file each; see base.py.

They stand in for the real sets in demonstrations, tests and benchmarks, so that nothing has to be downloaded.
`_rendering.py` draws the pictures and knows no layout.
"""

from packer.registry import Registry

registry = Registry(__name__, __path__[0], "synthetic set")
names = registry.names
load = registry.load
