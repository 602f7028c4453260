"""Registry: one file per format, codec, source or command, found by listing its folder.

Names are known without importing anything; a module is imported when it is first used. Packages outside packer add
theirs through the entry-point groups `packer.formats`, `packer.codecs` and `packer.sources`.
"""

import importlib
import importlib.util
import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from packer.errors import InvalidRequest, MissingPackage

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

# module -> what pip installs for it, typed as in a shell, with the oldest version that setup.cfg admits
_REQUIREMENTS = {
    "PIL": '"Pillow>=11.3"',
    "cv2": '"opencv-python>=5.0.0.93"',
    "matplotlib": '"matplotlib>=3.9"',
    "msgpack": '"msgpack>=1.1"',
    "nvidia": "nvidia-dali-cuda120",
    "nvidia.dali": "nvidia-dali-cuda120",  # other packages of NVIDIA's are there
    "obstore": '"obstore>=0.12"',
    "pillow_heif": '"pillow-heif>=1.0"',
    "pyarrow": '"pyarrow>=23.0.1"',
    "ray": '"ray>=2.50"',
    "turbojpeg": '"PyTurboJPEG>=1.8.2,<2"',
    "yaml": '"PyYAML>=6.0.2"',
}
_NOT_MEMBERS = ("base",)


class Registry:
    """The modules of one folder of packer, by the name that users type."""

    def __init__(self, package: str, folder: str, noun: str) -> None:
        """Files of the folder and of its subfolders are members, except `base`; what members share begins with `_`.

        A file `caffe_lmdb.py` is the member `caffe-lmdb`.
        """
        self._package = package
        self._folder = Path(folder)
        self._noun = noun

    def names(self) -> tuple[str, ...]:
        """All names, sorted; imports none of the modules."""
        files = [*self._folder.glob("[!_]*.py"), *self._folder.glob("[!_]*/[!_]*.py")]
        stems = {path.stem.replace("_", "-") for path in files} - set(_NOT_MEMBERS)
        return tuple(sorted(stems | {point.name for point in _entry_points(self._package)}))

    def __contains__(self, name: str) -> bool:
        """Return True if there is a module of this name, without importing it. Entry points are slow, and come last."""
        return self._file(name) is not None or any(point.name == name for point in _entry_points(self._package))

    def check(self, name: str) -> str:
        """The name itself; raises InvalidRequest for one that is not there. Imports nothing."""
        if name not in self:
            import difflib  # only an error needs it

            close = difflib.get_close_matches(name, self.names(), n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(self.names())}"
            raise InvalidRequest(f"unknown {self._noun} {name!r}; {hint}")
        return name

    def load(self, name: str) -> ModuleType:
        """The module behind `name`; raises InvalidRequest for an unknown one, MissingPackage where a package is
        absent.
        """
        self.check(name)
        file = self._file(name)
        if file is not None:
            below = file.relative_to(self._folder).with_suffix("").parts
            return import_or_explain(".".join((self._package, *below)), f"{self._noun} {name!r}")
        modules = sorted({point.module for point in _entry_points(self._package) if point.name == name})
        if len(modules) > 1:
            raise InvalidRequest(
                f"{self._noun} {name!r}: several packages bring it: {', '.join(modules)}; uninstall all but one"
            )
        return import_or_explain(modules[0], f"{self._noun} {name!r}")

    def _file(self, name: str) -> Path | None:
        """Return the file of the member of that name, which may come from a manifest; None if there is none."""
        is_name = _stem(name).isidentifier() and name[0] not in "_-" and "_" not in name  # no path
        if not is_name or name in _NOT_MEMBERS:
            return None
        plain = self._folder / f"{_stem(name)}.py"
        return plain if plain.exists() else next(self._folder.glob(f"[!_]*/{_stem(name)}.py"), None)


def _stem(name: str) -> str:
    """Return the name of a member's file, without its suffix."""
    return name.replace("-", "_")


def _entry_points(group: str) -> "EntryPoints | tuple[EntryPoint, ...]":
    if not _may_be_offered(group):
        return ()
    from importlib.metadata import entry_points  # 20 ms, and as many to read what every package offers

    return entry_points(group=group)


def _may_be_offered(group: str) -> bool:
    """Return True if an installed package may have entry points of this group; a quick search for its name.

    True wherever only importlib.metadata can tell: a finder that brings packages of its own, or a path that is a file.
    """
    finders = (finder for finder in sys.meta_path if finder is not PathFinder)
    if any(hasattr(finder, "find_distributions") for finder in finders):
        return True
    return any(_holds(folder or os.curdir, f"[{group}]".encode()) for folder in sys.path)


def _holds(folder: str, heading: bytes) -> bool:
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return False
    except OSError:  # a zip file, or a folder that may not be listed
        return True
    described = [name for name in names if name.lower().endswith((".dist-info", "egg-info"))]
    for name in described:
        try:
            with open(os.path.join(folder, name, "entry_points.txt"), "rb") as file:
                if heading in file.read():
                    return True
        except (FileNotFoundError, NotADirectoryError):  # it offers nothing; an .egg-info that is a file
            continue
        except OSError:
            return True
    return False


def import_or_explain(module: str, needed_by: str) -> ModuleType:
    """Import `module`; raises MissingPackage with the pip command where a package outside packer is absent."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing not in _REQUIREMENTS:
            missing = missing.partition(".")[0]
        if missing in ("", "packer"):
            raise
        check_installed(missing, needed_by)
        raise


def check_installed(module: str, needed_by: str) -> None:
    """Import nothing; raise MissingPackage with the pip command if `module` is not installed."""
    if importlib.util.find_spec(module) is None:
        wanted = _REQUIREMENTS.get(module, module)
        package = "nvidia-dali" if wanted.startswith("nvidia-dali-") else module  # the name ends in a version of CUDA
        raise MissingPackage(f"{needed_by} needs the package {package!r}: pip install {wanted}")
