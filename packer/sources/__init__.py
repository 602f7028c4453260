"""Sources: original data sets on disk, read as samples. Each module is a source. base.py defines the interface.

Sources are grouped in folders: image_files (images and their masks), annotations, grasp, records (files of many
records), arrays. Modules and folders that begin with `_` are not sources. `_trees` opens folders and archives.
`_extend` adds fields such as sidecar files to any source.

A source module has a class `Source(base.Source)`, created by `Source(root, **options)`, and an int `SPECIFICITY`. To
find the source of a folder, archive or file, _recognition calls `Source.recognize`, highest `SPECIFICITY` first.
"""

from os import PathLike
from typing import ClassVar, Unpack

from packer.errors import WrongType
from packer.registry import Registry
from packer.sources._option_table import OPTIONS, SourceOptions

registry = Registry(__name__, __path__[0], "source")
names = registry.names
load = registry.load


def having(option: str) -> list[str]:
    """Return the names of the sources whose constructor has the parameter `option`."""
    return [name for name in names() if option in load(name).Source.defaults()]


class NamedSource:
    """Description of an original data set for `packer.convert`: path, name of the source and options.

    `packer.sources` has a subclass for each source, such as `packer.sources.Coco("coco/", task="instances")`.
    """

    kind: ClassVar[str]  # name of the source, such as "coco"

    def __init__(self, root: str | PathLike[str], **options: Unpack[SourceOptions]) -> None:
        """Describe a data set. No file is read before `packer.convert`.

        Args:
            root: Folder, archive, file or URL of the data set.
            options: Options of this source. The docstring of the subclass lists them.

        Raises:
            WrongType: The source does not have one of the options.
        """
        own = _options_of(self.kind)
        if unknown := sorted(options.keys() - set(own)):
            raise WrongType(f"{type(self).__name__}: {unknown[0]}=: expected one of {', '.join(own)}")
        self.root = root
        self.options = options

    def __repr__(self) -> str:
        given = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"packer.sources.{type(self).__name__}({self.root!r}{given})"


def _options_of(kind: str) -> dict[str, str]:
    """Return `{option: help text}` for the source with the name `kind`."""
    defaults = load(kind).Source.defaults()
    uses = {name: option.uses for name, option in OPTIONS.items() if option.parameter in defaults}
    return {name: next((use for use in each if kind in use.sources), each[0]).help for name, each in uses.items()}


def __getattr__(name: str) -> type[NamedSource]:
    """Return the `NamedSource` subclass of a source, such as `GraspAnything` for grasp-anything."""
    # names of modules come here too, and `names` reads the entry points of all packages
    kind = {_class_name(each): each for each in names()}.get(name) if name[:1].isupper() else None
    if kind is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    options = "".join(f"\n    {option}: {text}" for option, text in _options_of(kind).items())
    text = f"A data set for the source {kind}. See NamedSource.\n\nOptions:{options}"
    made: type[NamedSource] = type(name, (NamedSource,), {"kind": kind, "__module__": __name__, "__doc__": text})
    globals()[name] = made
    return made


def __dir__() -> list[str]:
    """Return the names of the source classes, for `dir` and tab completion."""
    return sorted(["NamedSource", *map(_class_name, names())])


def _class_name(kind: str) -> str:
    return "".join(word.capitalize() for word in kind.split("-"))
