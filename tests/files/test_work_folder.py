"""Work folders: whose they are, what may lie in them, what is removed; and nothing behind a link."""

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from packer.errors import PackExists, StorageError, UnsafePath
from packer.files.folder_handle import FolderHandle
from packer.files.work_folder import ANYTHING, Names, check_marker, marker_name, work_folder
from tests.support.child_processes import child

NAMES: Names = {"tree": ANYTHING, "parts": r"part-[0-9]+", "list": ANYTHING}


def content(folder: Path) -> dict[str, bytes | str]:
    """Every name below a folder, with the file's bytes or what a link says."""
    found: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = os.readlink(path)
        else:
            found[name] = path.read_bytes() if path.is_file() else "folder"
    return found


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """A stranger's folder, with names that packer has too; a test must leave it as it is."""
    folder = tmp_path / "victim"
    for name in ("mine.txt", "tree/mine.txt", "parts/part-0", "parts/mine.txt", "list"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("mine")
    before = content(folder)
    yield folder
    assert content(folder) == before


def left_behind(path: Path) -> None:
    """A work folder as a killed run leaves it."""
    with work_folder(path, NAMES) as work:
        work.write_file("list", b"x")
        with work.make_folder("parts") as parts:
            parts.write_file("part-0", b"x")
        with work.make_folder("tree") as tree, tree.make_folder("deep") as deep:
            deep.write_file("file", b"x")


# ---- whose folder it is


def test_a_new_one_is_closed_to_others_marked_and_gone_at_the_end(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        with work_folder(tmp_path / "w", NAMES) as work:
            status = (tmp_path / "w").stat()
            assert stat.S_IMODE(status.st_mode) == 0o700
            assert os.listdir(tmp_path / "w") == [f"made-by-packer-{status.st_ino}"]
            work.make_folder("tree").close()
            assert stat.S_IMODE((tmp_path / "w/tree").stat().st_mode) == 0o777  # what is published is as others are
            work.clear()
    finally:
        os.umask(mask)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("what", ["link", "dangling link", "file", "fifo"])
def test_something_else_in_its_place_is_refused(tmp_path: Path, victim: Path, what: str) -> None:
    path = tmp_path / "w"
    makers: dict[str, Callable[[], object]] = {
        "link": lambda: path.symlink_to(victim),
        "dangling link": lambda: path.symlink_to(tmp_path / "nowhere"),
        "file": lambda: path.write_text("mine"),
        "fifo": lambda: os.mkfifo(path),
    }
    makers[what]()
    before = path.lstat()
    with pytest.raises(UnsafePath, match="folder that packer") as caught, work_folder(path, NAMES):
        pytest.fail("taken for a work folder")
    assert caught.value.exit_code == 2
    assert path.lstat() == before
    assert not (tmp_path / "nowhere").exists()


def test_a_folder_without_marker_is_refused_and_an_empty_one_is_taken(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    with work_folder(tmp_path / "w", NAMES):  # as a kill between mkdir and marker leaves it
        pass
    (tmp_path / "w/tree").mkdir(parents=True)
    (tmp_path / "w/tree/mine.txt").write_text("mine")
    with pytest.raises(UnsafePath, match="no marker"):
        work_folder(tmp_path / "w", NAMES).__enter__()
    assert content(tmp_path / "w") == {"tree": "folder", "tree/mine.txt": b"mine"}


def test_a_copy_as_an_archive_brings_it_is_refused(tmp_path: Path) -> None:
    left_behind(tmp_path / "shipped")
    shutil.copytree(tmp_path / "shipped", tmp_path / "w")
    before = content(tmp_path / "w")
    with pytest.raises(UnsafePath, match="marker of another"):
        work_folder(tmp_path / "w", NAMES).__enter__()
    assert content(tmp_path / "w") == before


@pytest.mark.parametrize("kind", ["folder", "link"])
def test_a_marker_is_a_file(tmp_path: Path, kind: str) -> None:
    (tmp_path / "w").mkdir()
    with FolderHandle.at(tmp_path / "w") as folder:
        marker = tmp_path / "w" / marker_name(folder)
        marker.symlink_to("nowhere") if kind == "link" else marker.mkdir()
        with pytest.raises(UnsafePath):
            check_marker(folder)


@pytest.mark.parametrize("is_empty", [True, False])
def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_empty: bool) -> None:
    if is_empty:
        (tmp_path / "w").mkdir()
    else:
        left_behind(tmp_path / "w")
    before = content(tmp_path / "w")
    if is_empty and os.geteuid() == 0:
        os.chown(tmp_path / "w", 4711, -1)
    elif is_empty:
        pytest.skip("only root makes a folder that is another's")
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 4711)
    with pytest.raises(UnsafePath, match="belongs to user"):
        work_folder(tmp_path / "w", NAMES).__enter__()
    assert content(tmp_path / "w") == before


def test_a_file_system_that_gives_all_to_one_user_is_no_hindrance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 4711)
    with work_folder(tmp_path / "w", NAMES) as work:
        work.write_file("list", b"x")
        work.clear()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("mode", [0o770, 0o777, 0o1777])
def test_one_that_others_could_write_to_is_closed_and_refused_once(tmp_path: Path, mode: int) -> None:
    left_behind(tmp_path / "w")
    (tmp_path / "w").chmod(mode)
    before = content(tmp_path / "w")
    with pytest.raises(UnsafePath, match="others could write"):
        work_folder(tmp_path / "w", NAMES).__enter__()
    assert content(tmp_path / "w") == before
    with work_folder(tmp_path / "w", NAMES) as work:
        work.clear()
    assert os.listdir(tmp_path) == []


# ---- what is removed


@pytest.mark.parametrize("name", ["mine.txt", "parts/mine.txt", "parts/part-x", "made-by-packer-1"])
def test_what_packer_does_not_make_is_named_and_nothing_is_removed(tmp_path: Path, name: str) -> None:
    left_behind(tmp_path / "w")
    (tmp_path / "w" / name).write_text("mine")
    before = content(tmp_path / "w")
    with pytest.raises(UnsafePath, match=f"w/{name}: .*not make"):
        work_folder(tmp_path / "w", NAMES).__enter__()
    assert content(tmp_path / "w") == before


def test_what_comes_in_between_stays_too(tmp_path: Path) -> None:
    with pytest.raises(UnsafePath, match=r"mine\.txt: .*not make"), work_folder(tmp_path / "w", NAMES) as w:
        (tmp_path / "w/mine.txt").write_text("mine")
        w.write_file("list", b"x")
        w.clear()
    assert (tmp_path / "w/mine.txt").read_text() == "mine"
    assert (tmp_path / "w/list").read_text() == "x"


def test_links_in_it_are_removed_and_not_followed(tmp_path: Path, victim: Path) -> None:
    left_behind(tmp_path / "w")
    shutil.rmtree(tmp_path / "w/parts")
    (tmp_path / "w/parts").symlink_to(victim / "parts")
    (tmp_path / "w/list").unlink()
    (tmp_path / "w/list").symlink_to(victim / "list")
    (tmp_path / "w/tree/link").symlink_to(victim)
    (tmp_path / "w/tree/hard").hardlink_to(victim / "list")
    os.mkfifo(tmp_path / "w/tree/fifo")
    with work_folder(tmp_path / "w", NAMES) as work:
        work.clear()
    assert sorted(os.listdir(tmp_path)) == ["victim"]


def test_a_tree_of_any_depth_and_width_goes_with_few_descriptors(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    with FolderHandle.at(tmp_path) as folder:
        below = folder.make_folder("tree")
        for number in range(1100):  # deeper than descriptors and recursion reach, and than a path is long
            below.write_file("file", b"") if number % 100 == 0 else None
            inner = below.make_folder("a-name-of-some-length")
            below.close()
            below = inner
        below.close()
        with folder.make_folder("tree") as top:
            for number in range(30):
                top.make_folder(f"wide{number}").close()
        folder.remove("tree")
    assert os.listdir(tmp_path) == []


def test_a_folder_that_is_moved_away_while_it_is_emptied_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, victim: Path
) -> None:
    """The way up, "..", leads into another folder then: nothing there is removed."""
    (tmp_path / "tree/inner/deep").mkdir(parents=True)
    real = os.rmdir

    def moving(name: str, *, dir_fd: int) -> None:
        real(name, dir_fd=dir_fd)
        if name == "deep":
            (tmp_path / "tree/inner").rename(victim / "inner")

    with FolderHandle.at(tmp_path) as folder, monkeypatch.context() as patch:
        patch.setattr(os, "rmdir", moving)
        with pytest.raises(StorageError, match="was moved"):
            folder.remove("tree")
    (victim / "inner").rmdir()


def test_a_folder_that_another_process_writes_into_while_it_is_emptied_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that nobody could end, say, writes on for a while."""
    (tmp_path / "tree/inner").mkdir(parents=True)
    real, late = os.rmdir, ["inner", "tree", "inner"]

    def filled(name: str, *, dir_fd: int) -> None:
        if name in late:
            late.remove(name)
            os.close(os.open("late", os.O_CREAT, dir_fd=os.open(name, os.O_RDONLY, dir_fd=dir_fd)))
        real(name, dir_fd=dir_fd)

    with FolderHandle.at(tmp_path) as folder, monkeypatch.context() as patch:
        patch.setattr(os, "rmdir", filled)
        folder.remove("tree")
    assert (os.listdir(tmp_path), late) == ([], [])


def test_a_folder_that_is_never_empty_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tree").mkdir()

    def full(name: str, *, dir_fd: int) -> None:
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))

    with FolderHandle.at(tmp_path) as folder, monkeypatch.context() as patch:
        patch.setattr(os, "rmdir", full)
        with pytest.raises(StorageError, match="not empty"):
            folder.remove("tree")


# ---- swapped while it is open


def test_a_folder_swapped_for_a_link_leads_nowhere(tmp_path: Path, victim: Path) -> None:
    with work_folder(tmp_path / "w", NAMES) as work:
        work.make_folder("parts").close()
        (tmp_path / "w").rename(tmp_path / "away")
        (tmp_path / "w").symlink_to(victim)
        (work.inside / "parts/part-1").write_bytes(b"new")  # as libraries do, by a path
        with work.folder("parts") as parts:
            parts.write_file("part-0", b"new")
        work.write_file("list", b"new")
        assert content(tmp_path / "away/parts") == {"part-0": b"new", "part-1": b"new"}
        work.clear()
        with work.make_folder("tree") as tree:
            tree.write_file("file", b"published")
        work.publish("tree", work.above, "target")
    assert content(tmp_path / "target") == {"file": b"published"}
    assert (tmp_path / "w").is_symlink()


def test_errors_name_the_folder_and_not_its_descriptor(tmp_path: Path) -> None:
    with pytest.raises(StorageError) as caught, work_folder(tmp_path / "w", NAMES) as work:
        other = f"{work.inside}9"
        raise StorageError(f"{work.inside / 'parts'}: full, {other} is not")
    assert str(caught.value) == f"{tmp_path / 'w/parts'}: full, {other} is not"


def test_a_kill_at_any_call_heals(tmp_path: Path) -> None:
    """Killed before the marker, before something is made, and between the removal of the marker and of the folder."""
    for call in ("open", "mkdir", "unlink", "rmdir"):
        for number in range(1, 5):

            def killed(name: str = call, when: int = number) -> None:
                real, count = getattr(os, name), [0]

                def kill(*given: object, **named: object) -> object:
                    count[0] += 1
                    if count[0] == when:
                        os.kill(os.getpid(), 9)
                    return real(*given, **named)

                setattr(os, name, kill)
                with work_folder(tmp_path / "w", NAMES) as work:
                    work.make_folder("tree").close()
                    work.clear()

            child(killed)
            with work_folder(tmp_path / "w", NAMES) as work:
                work.clear()
            assert os.listdir(tmp_path) == []


# ---- files


@pytest.mark.parametrize("kind", ["link", "hard link", "folder", "fifo"])
def test_only_a_file_of_one_name_is_read(tmp_path: Path, victim: Path, kind: str) -> None:
    path = tmp_path / "list"
    makers: dict[str, Callable[[], object]] = {
        "link": lambda: path.symlink_to(victim / "list"),
        "hard link": lambda: path.hardlink_to(victim / "list"),
        "folder": path.mkdir,
        "fifo": lambda: os.mkfifo(path),
    }
    makers[kind]()
    with FolderHandle.at(tmp_path) as folder:
        with pytest.raises(UnsafePath, match="list: .*packer made"):
            folder.read_file("list")
        with pytest.raises(StorageError, match="File exists"):
            folder.write_file("list", b"x")


def test_publish_and_swap_take_folders_only(tmp_path: Path, victim: Path) -> None:
    (tmp_path / "staged").symlink_to(victim)
    with FolderHandle.at(tmp_path) as folder:
        for act in (folder.publish, folder.swap):
            with pytest.raises(UnsafePath):
                act("staged", folder, "target")
        (tmp_path / "real").mkdir()
        (tmp_path / "target").symlink_to(victim)
        with pytest.raises(PackExists):
            folder.publish("real", folder, "target")
