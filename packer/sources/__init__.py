"""Sources: original data sets on disk -> samples. One file each; see base.py for the contract.

Sources of one subject share a folder: image_files (images, and their masks), annotations, grasp, records (files of
many records), arrays. Files and folders that begin with `_` are not sources: _trees opens folders and archives, _extend
adds fields to any source (sidecar files, splits). objects reads Python objects: all of its files begin with `_`.

A source module has `class Source(base.Source)`, made by `Source(root, **options)`, and
`recognize(names) -> str | None`: given the relative POSIX paths found under a folder, a line that says what was
recognized, or None; one of record files is asked for the first bytes instead, by its `Source.recognize_content`, one
that tables tell for these, by its `Source.recognize_tables`. Its int `SPECIFICITY` orders them, and _detection asks
them in this order what a folder, an archive or a file holds.
"""

from packer.registry import Registry

registry = Registry(__name__, __path__[0], "source")
names = registry.names
load = registry.load


def having(option: str) -> list[str]:
    """Names of the sources that have an option."""
    return [name for name in names() if option in load(name).Source.defaults()]
