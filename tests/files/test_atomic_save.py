"""A file is saved whole or stays as it was: through no link, in the place of no folder, and to devices as they are."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from packer.errors import InvalidRequest, StorageError
from packer.files.atomic_save import save
from packer.files.work_folder import ANYTHING, work_folder


def test_a_file_is_replaced_whole_or_stays(tmp_path: Path) -> None:
    target = tmp_path / "a.png"
    with work_folder(tmp_path / ".a.png.save", {"new": ANYTHING}) as work:
        work.write_file("new", b"left by a run that was killed")
    save(target, b"one")
    save(target, b"two")
    assert target.read_bytes() == b"two"
    with pytest.raises(InvalidRequest, match="found a folder"):
        save(tmp_path, b"three")
    with pytest.raises(StorageError, match="No such file"):
        save(tmp_path / "no" / "a.png", b"three")
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


@pytest.mark.parametrize("kind", ["link", "dangling link", "fifo", "folder"])
def test_a_result_is_saved_in_the_place_of_a_link_and_of_no_device(tmp_path: Path, kind: str) -> None:
    path, victim = tmp_path / "out.json", tmp_path / "victim"
    victim.write_text("mine")
    makers: dict[str, Callable[[], object]] = {
        "link": lambda: path.symlink_to(victim),
        "dangling link": lambda: path.symlink_to(tmp_path / "nowhere"),
        "fifo": lambda: os.mkfifo(path),
        "folder": path.mkdir,
    }
    makers[kind]()
    if "link" in kind:
        save(path, b"{}")
        assert not path.is_symlink()
        assert path.read_bytes() == b"{}"
    else:
        with pytest.raises(ValueError, match="file to write"):
            save(path, b"{}")
    assert not (tmp_path / "nowhere").exists()
    assert victim.read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["out.json", "victim"]


def test_devices_are_written_to(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    save(Path("/dev/stdout"), b"text\n")
    save(Path("/dev/null"), b"text\n")
    assert capfd.readouterr().out == "text\n"
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
