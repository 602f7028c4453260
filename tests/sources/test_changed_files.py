"""Files that change while they are packed: equal size and time are not enough to pass for the file of the listing."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from shutil import copyfile

import pytest

from packer import sources
from packer.conversion.convert import convert
from packer.conversion.options import ConversionOptions
from packer.conversion.plan import make_plan
from packer.errors import BadInput
from packer.sources import base
from packer.system.progress_callback import Progress
from tests.support.archives import MAKERS
from tests.support.source_trees import BUILDERS, photos


def rewritten(path: Path) -> None:
    """Overwrite a file in place, and restore its time of modification."""
    before = path.stat()
    while path.stat().st_ctime_ns == before.st_ctime_ns:
        path.write_bytes(path.read_bytes())
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replaced(path: Path) -> None:
    """Rename another file of that size and time to the path."""
    before, other = path.stat(), path.with_name("other")
    while path.stat().st_ctime_ns == before.st_ctime_ns:
        copyfile(path, other)
        os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
        os.replace(other, path)


CHANGES: dict[str, Callable[[Path], None]] = {"in place": rewritten, "renamed": replaced}
KEEP_ROWS = ("n5", "npy", "npz")  # in memory, of what was read last
READ_BY_OFFSET = [name for name in MAKERS if name != "packed"]  # a small tar.gz is kept in memory


@pytest.mark.parametrize("kind", sources.names())
@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changed_after_it_was_read_once(tmp_path: Path, kind: str, change: str) -> None:
    source = sources.load(kind).Source(BUILDERS[kind](tmp_path / "in"))
    source[0]
    CHANGES[change](base.file_paths(source, 0)[0])
    copy = pickle.loads(pickle.dumps(source))  # as on another machine of a cluster
    for each in (copy, source) if kind not in KEEP_ROWS else (copy,):
        assert isinstance(each, base.Source)
        with pytest.raises(BadInput, match="changed"):
            each[0]


@pytest.mark.parametrize("maker", READ_BY_OFFSET)
@pytest.mark.parametrize("change", CHANGES)
def test_an_archive_that_changes_during_a_conversion(tmp_path: Path, maker: str, change: str) -> None:
    archive = MAKERS[maker](photos(tmp_path / "in", 40), tmp_path / "data")
    calls: list[Progress] = []

    def changing(progress: Progress) -> None:
        calls.append(progress)
        if len(calls) == 3:
            CHANGES[change](archive)

    with pytest.raises(BadInput, match="changed"):
        convert(archive, tmp_path / "a.pack", kind="folder", part_bytes=2000, threads=1, progress=changing)
    assert not (tmp_path / "a.pack").exists()


@pytest.mark.parametrize("change", CHANGES)
def test_a_image_that_changes_during_a_conversion(tmp_path: Path, change: str) -> None:
    folder = photos(tmp_path / "in", 40)
    last = sorted(folder.rglob("*.jpg"))[-1]
    calls: list[Progress] = []

    def changing(progress: Progress) -> None:
        calls.append(progress)
        if len(calls) == 3:
            CHANGES[change](last)

    with pytest.raises(BadInput, match=rf"{last.name}.*changed"):
        convert(folder, tmp_path / "a.pack", part_bytes=2000, threads=1, progress=changing)


@pytest.mark.parametrize("kind", ["coco", "table", "regrad"])
def test_a_table_that_changed_after_it_was_parsed(tmp_path: Path, kind: str) -> None:
    source = sources.load(kind).Source(BUILDERS[kind](tmp_path / "in"))
    rewritten(source.root / source.tables[0])
    with pytest.raises(BadInput, match="changed"):
        make_plan(source, ConversionOptions())


def test_a_file_outside_of_the_folder_that_changed(tmp_path: Path) -> None:
    folder = photos(tmp_path / "in", 2)
    for path in sorted(folder.rglob("*.jpg")):
        copyfile(path, (tmp_path / path.stem).with_suffix(".txt"))
    source = sources.load("folder").Source(folder)
    source.outside = ("..",)
    name = f"../{sorted(folder.rglob('*.jpg'))[0].stem}.txt"
    source.read_file(name)
    rewritten(folder / name)
    with pytest.raises(BadInput, match="changed"):
        source.read_file(name)
