"""One walk over a folder: names, links, loops, and how they are shown."""

import os
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packer.errors import BadInput, InvalidRequest
from packer.sources._message_texts import counted, described, listed, shown
from packer.sources._trees.folder_scan import scan
from tests.support.source_trees import write

# every byte but NUL and the separator; "." and ".." are no names
FILE_NAMES = st.binary(min_size=1, max_size=12).filter(
    lambda name: not {0, 47} & set(name) and not name.startswith(b".")
)


def test_names_are_relative_posix_paths_in_sorted_order(tmp_path: Path) -> None:
    write(tmp_path, {"b/c": b"", "b-d": b"", "a": b"", "b/a/x": b""})
    (tmp_path / "empty").mkdir()
    listing = scan(tmp_path)
    assert listing.names == ["a", "b-d", "b/a/x", "b/c"]
    assert listing.folders == ["b", "b/a", "empty"]
    assert listing.loops == []
    assert listing.notes() == []


@settings(max_examples=30, deadline=None)
@given(names=st.lists(st.lists(FILE_NAMES, min_size=1, max_size=3), max_size=6))
def test_any_bytes_are_a_name(names: list[list[bytes]], tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("tree")
    for parts in names:
        folder = os.path.join(os.fsencode(root), *(part + b"_" for part in parts[:-1]))
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, parts[-1] + b"."), "wb"):
            pass
    expected = {b"/".join([*(part + b"_" for part in parts[:-1]), parts[-1] + b"."]) for parts in names}
    listing = scan(root)
    assert {os.fsencode(name) for name in listing.names} == expected
    assert listing.names == sorted(listing.names)
    assert all((root / name).is_file() for name in listing.names)
    assert all(shown(name).isprintable() and shown(name).encode() for name in listing.names)


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_a_folder_elsewhere_is_entered_if_asked_and_once(tmp_path: Path, names: tuple[str, ...]) -> None:
    write(tmp_path / "out", {"x": b"", "deep/y": b""})
    root = write(tmp_path / "root", {"z": b""})
    for name in names:
        (root / name).symlink_to(tmp_path / "out")
    with pytest.raises(BadInput, match="links.*: a, b; --follow-links"):
        scan(root)
    listing = scan(root, follow_links=True)
    assert (listing.names, listing.folders) == (["a/deep/y", "a/x", "z"], ["a", "a/deep"])
    assert (listing.loops, listing.repeats) == ([], [("b", "a")])
    assert "listed already: b (a)" in listing.notes()[0]


def test_a_folder_is_entered_by_its_own_path_first(tmp_path: Path) -> None:
    root = write(tmp_path, {"z/x": b""})
    (root / "a").symlink_to("z")
    (root / "z/deep").symlink_to("../b")
    (root / "b").mkdir()
    for follow_links in (False, True):
        listing = scan(root, follow_links=follow_links)
        assert (listing.names, listing.folders) == (["z/x"], ["b", "z"])
        assert listing.repeats == [("a", "z"), ("z/deep", "b")]


def test_a_folder_that_lies_in_two_others_that_are_linked_is_entered_once(tmp_path: Path) -> None:
    write(tmp_path / "store", {"sub/x": b"", "y": b""})
    root = write(tmp_path / "root", {})
    root.mkdir()
    (root / "all").symlink_to(tmp_path / "store")
    (root / "a").symlink_to(tmp_path / "store/sub")
    (root / "linked").symlink_to(tmp_path / "store/sub")
    listing = scan(root, follow_links=True)
    assert listing.names == ["a/x", "all/y"]
    assert listing.repeats == [("all/sub", "a"), ("linked", "a")]
    assert listing.folders == ["a", "all"]


@contextmanager
def counted_folders() -> Iterator[list[str]]:
    """Every folder that is listed inside the block; more than 10 000 end the test."""
    seen: list[str] = []
    real = os.scandir

    def scandir(path: str) -> object:
        seen.append(path)
        assert len(seen) <= 10_000, "folders are entered again and again"
        return real(path)

    with mock.patch.object(os, "scandir", scandir):
        yield seen


@pytest.mark.parametrize("follow_links", [False, True])
@pytest.mark.parametrize("outside", [False, True])
def test_a_farm_of_links_costs_no_more_than_its_folders(tmp_path: Path, outside: bool, follow_links: bool) -> None:
    """Two links in each of 47 folders to the next one: 2^47 paths; of 38, since no path goes through 40 links."""
    root = write(tmp_path / "root", {"x": b""})
    farm, count = (tmp_path / "farm", 38) if outside else (root, 47)
    for number in range(count):
        write(farm, {f"f{number:02}/file": b""})
    for number in range(count - 1):
        for name in "ab":
            (farm / f"f{number:02}" / name).symlink_to(f"../f{number + 1:02}")
    if outside:
        (root / "in").symlink_to(farm / "f00")
    with counted_folders() as seen:
        if outside and not follow_links:
            with pytest.raises(BadInput, match="link.*: in; --follow-links"):
                scan(root)
            assert len(seen) == 1
        else:
            listing = scan(root, follow_links=follow_links)
            assert len(listing.names) == len(seen) == count + 1
            assert len(listing.repeats) == (count - 1) * (1 if outside else 2)


@pytest.mark.parametrize("follow_links", [False, True])
def test_links_that_lead_round_and_out_end(tmp_path: Path, follow_links: bool) -> None:
    root = write(tmp_path / "root", {"a/x": b""})
    write(tmp_path / "out", {"y": b""})
    (tmp_path / "out/back").symlink_to(root)
    (tmp_path / "out/self").symlink_to(".")
    (root / "a/out").symlink_to(tmp_path / "out")
    if not follow_links:
        with pytest.raises(BadInput, match="a/out; --follow-links"):
            scan(root)
        return
    listing = scan(root, follow_links=True)
    assert listing.names == ["a/out/y", "a/x"]
    assert listing.loops == ["a/out/back", "a/out/self"]


def test_loops_end_and_are_noted(tmp_path: Path) -> None:
    write(tmp_path, {"a/b/x": b""})
    (tmp_path / "a/b/up").symlink_to(tmp_path / "a")
    (tmp_path / "a/root").symlink_to(tmp_path)
    (tmp_path / "self").symlink_to("self")
    listing = scan(tmp_path)
    assert listing.names == ["a/b/x", "self"]
    assert listing.loops == ["a/b/up", "a/root"]
    assert "a/b/up, a/root" in listing.notes()[0]


def test_a_broken_link_is_a_name(tmp_path: Path) -> None:
    (tmp_path / "gone.jpg").symlink_to("nowhere")
    assert scan(tmp_path).names == ["gone.jpg"]


def test_folders_that_cannot_be_listed_are_all_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"a/x": b"", "b/x": b"", "c/x": b""})
    real = os.scandir

    def refuse(path: str) -> object:
        if path.rstrip("/")[-1] in "ac":
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(BadInput, match=r"a/ \(Permission.*c/ \(Permission") as caught:
        scan(tmp_path)
    assert "b/" not in str(caught.value)


def test_an_entry_that_cannot_be_told_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Entry:
        name = "x"

        def is_symlink(self) -> bool:
            return False

        def is_dir(self) -> bool:
            raise PermissionError(13, "Permission denied")

    class Entries(list[Entry]):
        def __enter__(self) -> "Entries":
            return self

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(os, "scandir", lambda path: Entries([Entry()]))
    with pytest.raises(BadInput, match="Permission denied"):
        scan(tmp_path)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(InvalidRequest, match="no such folder"):
        scan(path)


@pytest.mark.full
def test_ten_thousand_names_take_less_than_200_bytes_each(tmp_path: Path) -> None:
    for folder in range(10):
        (tmp_path / f"class_{folder:03}").mkdir()
        for number in range(1000):
            os.mknod(tmp_path / f"class_{folder:03}" / f"image_{folder:03}_{number:05}.jpg")
    tracemalloc.start()
    listing = scan(tmp_path)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(listing.names) == 10_000
    assert kept < 200 * 10_000
    assert peak < 250 * 10_000


def test_names_lists_counts_and_suffixes_are_shown_in_one_line() -> None:
    assert shown("ünï 'x'") == "ünï 'x'"
    assert shown("a\nb\udcff\u202e") == "a\\nb\\udcff\\u202e"
    assert listed(["a", "b"]) == "a, b"
    assert listed(map(str, range(25))).endswith("18, 19 and 5 more")
    assert [counted(1, "class"), counted(2, "class"), counted(0, "view")] == ["1 class", "2 classes", "0 views"]
    assert described(["a.JPG", "b/c.jpg", "d.txt", "e"]) == "4 files (.jpg 2, .txt 1, no suffix 1)"
    assert described([]) == "0 files"


def test_hidden_folders_are_noted(tmp_path: Path) -> None:
    names = ("a/1.jpg", ".hid/1.jpg", ".hid/x/2.PNG", ".hid/notes.txt", ".git/3.jpg", "a/.more/4.jpg")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    found = scan(tmp_path)
    assert found.names == ["a/1.jpg"]
    assert found.notes() == [
        "ignored, hidden or written by desktops and editors: .git/ 1, .hid/ 1, .more/ 1",
    ]
