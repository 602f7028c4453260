"""Sources: original data sets on disk, read as samples. Each module is a source; base.py has the contract.

Sources of one subject share a folder: image_files (images and their masks), annotations, grasp, records (files of many
records), arrays. Names that begin with `_` are not sources: `_trees` opens folders and
archives, and `_extend` adds fields such as sidecar files to any source.

A source module has a class `Source(base.Source)`, made by `Source(root, **options)`, and an int `SPECIFICITY`. To find
the source of a folder, an archive or a file, _recognition calls `Source.recognize` in the order of `SPECIFICITY`.
"""

from packer.registry import Registry

registry = Registry(__name__, __path__[0], "source")
names = registry.names
load = registry.load


def having(option: str) -> list[str]:
    """Return the names of the sources that have an option."""
    return [name for name in names() if option in load(name).Source.defaults()]
