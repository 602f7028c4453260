"""Shared options: options of several commands, the types of their values, and the manifest and index of PACK."""

import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from packer.errors import InvalidRequest, printable
from packer.files.terminal_output import echo
from packer.registry import Registry
from packer.schema import MOST_PIXELS
from packer.stores.url import URLPath, is_url, path_or_url
from packer.system import byte_sizes

if TYPE_CHECKING:
    from packer.tools.report import ToolReport


class Group(Enum):
    """Groups of commands, in the order of `packer --help`. Command modules set `PLACE` to (group, position in it)."""

    MAKE_A_PACK = "Make a pack"
    LOOK_AT_A_PACK = "Look at a pack"
    LOAD_FASTER = "Load faster"
    CHECK_AND_REPAIR = "Check and repair"
    REFERENCE = "Reference"


class NamedPath(click.Path):
    """A path on this machine. Refuses URLs and "", which pathlib would read as the current folder."""

    def __init__(self, *, exists: bool = False, file_okay: bool = True) -> None:
        super().__init__(exists=exists, file_okay=file_okay, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if is_url(value):
            self.fail(
                f"{printable(value)}: expected a place on this machine, found a URL; packer stage URL --to DIR copies "
                "a pack here",
                param,
                ctx,
            )
        if not os.fspath(value):
            self.fail("an empty text is not a path; give a folder, or . for the current one", param, ctx)
        return super().convert(os.path.expanduser(value), param, ctx)


class PathOrURL(NamedPath):
    """A path on this machine, or the URL of an object store such as s3://bucket/photos."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return path_or_url(value) if is_url(value) else super().convert(value, param, ctx)


class PackOrURL(PathOrURL):
    """A folder that exists, with `file_okay` also a file, or a URL, which is not checked."""

    def __init__(self, *, file_okay: bool = False) -> None:
        super().__init__(exists=True, file_okay=file_okay)


class RegistryName(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2 only
    """A name in a registry, or one of the words in `further`. Checking a name imports no module."""

    name = "name"

    def __init__(self, registry: Registry, *further: str) -> None:
        self._registry = registry
        self._further = further

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        lowered = value.lower()
        if lowered in self._further or lowered in self._registry:
            return lowered
        return self._registry.check(value)

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return f"[{'|'.join((*self._further, *self._registry.names()))}]"


class Count(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2 only
    """A number from `least` to `most`, whole unless `is_whole` is False. Help texts show it as N."""

    name = "number"

    def __init__(self, least: int = 1, most: float = math.inf, *, is_whole: bool = True) -> None:
        self._least, self._most, self._type = least, most, int if is_whole else float

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        with suppress(ValueError):
            number = self._type(value)
            if self._least <= number <= self._most:
                return number
        kind = "a whole number" if self._type is int else "a number"
        most = f" and at most {self._most}" if self._most < math.inf else ""
        raise click.BadParameter(f"{value!r}: expected {kind}, at least {self._least}{most}", ctx, param)

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "N"


def examples(*lines: str) -> str:
    """Return the last section of the help of a command: `lines` under the heading Examples."""
    return "\b\n" + "\n".join((f"Example{'s' * (len(lines) > 1)}:", *(f"  {line}" for line in lines)))


def parse_size(text: str) -> int:
    """Return the number of bytes for a text such as 256M, 1.5GiB or 0. Raises click.BadParameter for other text."""
    try:
        return byte_sizes.parse_size(text)
    except InvalidRequest as error:
        raise click.BadParameter(error.message) from None


def parse_names(_: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    """Return the names in a text such as A,B; None if the text is None or empty."""
    return tuple(name.strip() for name in value.split(",") if name.strip()) if value else None


def parse_counts(_: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    """Return the sorted numbers in a text such as 0,1,4-8, or None for None. Raises click.BadParameter."""
    if value is None:
        return None
    found: set[int] = set()
    for piece in value.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,6})\s*(?:-\s*([0-9]{1,6})\s*)?", piece)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise click.BadParameter(f"{value!r}: expected numbers and ranges, such as 0-9,12")
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return tuple(sorted(found))


def _loaders(_: click.Context, parameter: click.Parameter, value: str) -> tuple[str, ...]:
    return ("DataLoader", "Loader", "Loader-workers") if value == "all" else (value,)


def _pixels(_: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    match = re.fullmatch(r"([0-9]{1,12})([kMG]?)", value)
    pixels = int(match[1]) * {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}[match[2]] if match else 0
    if not 1 <= pixels <= MOST_PIXELS:
        most = f"{MOST_PIXELS // 1_000_000}M"
        raise click.BadParameter(f"{value!r}: expected a number of pixels up to {most}, such as 400M")
    return pixels


max_pixels_option = click.option(
    "--max-pixels",
    callback=_pixels,
    metavar="N",
    help="Largest image, such as 400M pixels.  [default: 100M]",
)
# options of the commands that measure
batch_option = click.option(
    "--batch-size", "-b", "batch", type=Count(), default=32, show_default=True, help="Batch size."
)
loader_option = click.option(
    "--loader",
    "loaders",
    type=click.Choice(("all", "DataLoader", "Loader", "Loader-workers"), case_sensitive=False),
    metavar="[all|DataLoader|Loader|Loader-workers]",
    default="all",
    show_default=True,
    callback=_loaders,
    help="Loaders to measure.",
)
geometry_option = click.option(
    "--geometry", metavar="TEXT", help="Such as 'RandomResizedCrop(224), RandomHorizontalFlip()'."
)
follow_links_option = click.option(
    "--follow-links", is_flag=True, help="Follow links that lead out of the source folder."
)
scratch_option = click.option(
    "--scratch",
    type=NamedPath(),
    metavar="DIR",
    help="If PACK is a URL: local folder for parts.",
)
fields_option = click.option("--fields", callback=parse_names, metavar="A,B", help="Load only these fields.")


_Command = TypeVar("_Command", bound=Callable[..., Any])


class _Figures(click.Path):
    """Path of a JSON file to write. A suffix that is not .json, or a path that cannot be written, is an error."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, dir_okay=False)

    def convert(self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None) -> Path:
        from packer.files.atomic_save import check_savable  # keeps `packer --help` light

        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if path.suffix.lower() != ".json":
            self.fail(f"{str(path)!r}: expected a name that ends in .json", param, ctx)
        check_savable(path)
        return path


output_option = click.option(
    "--output",
    "-o",
    "outputs",
    multiple=True,
    type=_Figures(),
    metavar="FILE.json",
    help="Write the figures into a file; repeatable.",
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print the result as one line of JSON; the report goes to stderr."
)


def check_folders(sources: Sequence[Path]) -> None:
    """Raise InvalidRequest for a source that is not a folder. Commands call this before the slow import of torch."""
    from packer.conversion.source_spec import check_folder  # keeps `packer --help` light

    for source in sources:
        check_folder(source)


def deliver(report: "ToolReport", options: Mapping[str, Any]) -> None:
    """Print a report, and write it to the files of --output. `options` has the keys as_json and outputs."""
    report.print(as_json=options["as_json"])
    for path in options["outputs"]:
        report.write(path)


@contextmanager
def pack_head(pack: Path) -> Iterator[Path]:
    """Return a `with` block that yields a folder with the manifest and index of PACK; for a URL, with copies."""
    if not isinstance(pack, URLPath):
        yield pack
        return
    import tempfile

    from packer.files.storage_errors import failing
    from packer.pack.manifest import NAME
    from packer.pack.remote_head import fetch_index, read_manifest
    from packer.stores.store import Store  # keeps `packer --help` light

    store = Store(pack.url)
    _, manifest = read_manifest(store)
    with tempfile.TemporaryDirectory(prefix="packer-") as name:
        fetch_index(store, manifest, Path(name))
        with failing(Path(name), "write"):
            (Path(name) / NAME).write_bytes(manifest.to_bytes())
        yield Path(name)


def left_out(noun: str, key: str, reason: str) -> str:
    """Return a line of `noun` (skipped or incomplete), key and reason. Advice to skip the sample is removed."""
    for advice in ("; --on-error skip leaves it out", "; replace the file or leave it out"):
        reason = reason.removesuffix(advice)
    is_named = re.search(rf"(?<!\w){re.escape(key)}(?!\w)", reason.partition(": ")[0])
    return f"{noun} {reason}" if is_named else f"{noun} {key}: {reason}"


def print_json(data: Any) -> None:
    """Print `data` as one line of JSON to stdout."""
    echo(json.dumps(data, sort_keys=True))
