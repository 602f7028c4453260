"""Registry: the formats, codecs, sources or commands of packer, by name. Each member is one Python file of a folder.

Listing the names imports no member. `load` imports a member at first use. Other packages add members through the
entry-point groups `packer.formats`, `packer.codecs` and `packer.sources`.
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

# module -> pip requirements, quoted for a shell, with the oldest version in setup.cfg
_REQUIREMENTS = {
    "PIL": '"Pillow>=11.3"',
    "cv2": '"opencv-python>=5.0.0.93"',
    "msgpack": '"msgpack>=1.1"',
    "nvidia": "nvidia-dali-cuda120",
    "nvidia.dali": "nvidia-dali-cuda120",  # `nvidia` may exist without DALI
    "obstore": '"obstore>=0.12"',
    "pillow_heif": '"pillow-heif>=1.0"',
    "pyarrow": '"pyarrow>=23.0.1"',
    "ray": '"ray>=2.50"',
    **dict.fromkeys(("starlette", "uvicorn"), '"starlette>=1.7" "uvicorn>=0.45"'),
    "turbojpeg": '"PyTurboJPEG>=1.8.2,<2"',
    "yaml": '"PyYAML>=6.0.2"',
}
_NOT_MEMBERS = ("base",)


class Registry:
    """Modules of one folder of packer, by name: the file `caffe_lmdb.py` is the member `caffe-lmdb`.

    Files of the folder and of direct subfolders are members. `base.py` and names that begin with `_` are not members.
    """

    def __init__(self, package: str, folder: str, noun: str) -> None:
        """Create a registry.

        Args:
            package: Package of the folder, which is also the entry-point group: `packer.codecs`.
            folder: Path of the folder.
            noun: Word for a member in messages: `codec`.
        """
        self._package = package
        self._folder = Path(folder)
        self._noun = noun

    def names(self) -> tuple[str, ...]:
        """Return the sorted names of all members, without importing a member."""
        files = [*self._folder.glob("[!_]*.py"), *self._folder.glob("[!_]*/[!_]*.py")]
        stems = {path.stem.replace("_", "-") for path in files} - set(_NOT_MEMBERS)
        return tuple(sorted(stems | {point.name for point in _entry_points(self._package)}))

    def __contains__(self, name: str) -> bool:
        return self._file(name) is not None or any(point.name == name for point in _entry_points(self._package))

    def check(self, name: str) -> str:
        """Return `name`. If no member has this name, raise InvalidRequest. No member is imported."""
        if name not in self:
            import difflib  # only an error needs it

            close = difflib.get_close_matches(name, self.names(), n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(self.names())}"
            raise InvalidRequest(f"unknown {self._noun} {name!r}; {hint}")
        return name

    def load(self, name: str) -> ModuleType:
        """Import and return the module of member `name`.

        An unknown name raises InvalidRequest. A missing optional package raises MissingPackage.
        """
        file = self._file(name)
        if file is not None:
            below = file.relative_to(self._folder).with_suffix("").parts
            return import_or_explain(".".join((self._package, *below)), f"{self._noun} {name!r}")
        self.check(name)
        modules = sorted({point.module for point in _entry_points(self._package) if point.name == name})
        if len(modules) > 1:
            raise InvalidRequest(
                f"{self._noun} {name!r}: several packages bring it: {', '.join(modules)}; uninstall all but one"
            )
        return import_or_explain(modules[0], f"{self._noun} {name!r}")

    def _file(self, name: str) -> Path | None:
        """Return the file of member `name`, or None. The name may come from a manifest, so a path is refused."""
        is_name = _stem(name).isidentifier() and name[0] not in "_-" and "_" not in name  # no path
        if not is_name or name in _NOT_MEMBERS:
            return None
        plain = self._folder / f"{_stem(name)}.py"
        return plain if plain.exists() else next(self._folder.glob(f"[!_]*/{_stem(name)}.py"), None)


def _stem(name: str) -> str:
    return name.replace("-", "_")


def _entry_points(group: str) -> "EntryPoints | tuple[EntryPoint, ...]":
    if not _may_be_offered(group):
        return ()
    from importlib.metadata import entry_points  # slow import

    return entry_points(group=group)


def _may_be_offered(group: str) -> bool:
    """Return True if a package may have entry points of this group. This is faster than importlib.metadata."""
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
        except (FileNotFoundError, NotADirectoryError):  # no entry points, or an .egg-info that is a file
            continue
        except OSError:
            return True
    return False


def import_or_explain(module: str, needed_by: str) -> ModuleType:
    """Import and return `module`. If a package outside packer is not installed, raise MissingPackage.

    Args:
        needed_by: Beginning of the message, such as `codec 'jpeg'`.
    """
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
    """Raise MissingPackage if `module` is not installed. The module is not imported."""
    if importlib.util.find_spec(module) is None:
        wanted = _REQUIREMENTS.get(module, module)
        package = "nvidia-dali" if wanted.startswith("nvidia-dali-") else module  # the name ends in a version of CUDA
        raise MissingPackage(f"{needed_by} needs the package {package!r}: pip install {wanted}")
