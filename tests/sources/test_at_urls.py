"""Folders behind URLs: every source of small files reads objects below a prefix as the folder that they came from."""

from pathlib import Path

import pytest

from packer import sources
from packer.conversion.convert import convert
from packer.conversion.source_spec import SourceSpec
from packer.conversion.source_verification import Comparison
from packer.errors import BadInput, InvalidRequest, StorageError
from packer.pack import manifest as manifests
from packer.sources._trees.open_tree import open_tree
from packer.stores.url import URLPath
from tests.support.conversions import digest
from tests.support.object_server import Fault, ObjectServer
from tests.support.source_trees import BUILDERS, image, photos

FOLDER_LIKE = [name for name in BUILDERS if not sources.load(name).Source.holds_records]
RECORDS = [name for name in BUILDERS if sources.load(name).Source.holds_records]
URL = "s3://b/sets/one"


def without_odd_names(folder: Path) -> Path:
    """The folder without files whose names no client of a store takes."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.name.isprintable():
            path.unlink()
    return folder


@pytest.mark.one_in(15)
@pytest.mark.parametrize("kind", FOLDER_LIKE)
def test_a_url_gives_the_pack_of_the_folder(tmp_path: Path, object_server: ObjectServer, kind: str) -> None:
    folder = without_odd_names(BUILDERS[kind](tmp_path / "in"))
    object_server.put_folder(folder, "sets/one/")
    object_server.put("sets/one-more/other.jpg", b"beside")
    convert(folder, tmp_path / "a.pack", kind=kind)
    convert(URL, tmp_path / "b.pack", kind=kind)
    a, b = manifests.read(tmp_path / "a.pack"), manifests.read(tmp_path / "b.pack")
    assert (b.pack_id, b.source, b.incomplete, b.skipped) == (a.pack_id, a.source, a.incomplete, a.skipped)
    assert digest(tmp_path / "a.pack" / "part-00000") == digest(tmp_path / "b.pack" / "part-00000")
    comparison = Comparison(tmp_path / "a.pack", URLPath(URL))
    assert list(comparison.problems()) == [] and comparison.compared > 0


@pytest.mark.one_in(15)
@pytest.mark.parametrize("kind", FOLDER_LIKE)
def test_it_is_recognized_as_the_folder_is(tmp_path: Path, object_server: ObjectServer, kind: str) -> None:
    folder = without_odd_names(BUILDERS[kind](tmp_path / "in"))
    object_server.put_folder(folder, "sets/one/")

    def recognized(root: Path) -> str:
        try:
            return SourceSpec().open(root)[0].kind
        except InvalidRequest as error:  # two may know it, and some need an option
            return error.message.replace(str(root), "ROOT")

    assert recognized(URLPath(URL)) == recognized(folder)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("kind", RECORDS)
def test_files_of_many_records_are_refused(tmp_path: Path, object_server: ObjectServer, kind: str) -> None:
    folder = BUILDERS[kind](tmp_path / "in")
    object_server.put_folder(folder if folder.is_dir() else folder.parent, "sets/one/")
    with pytest.raises(InvalidRequest, match="s3://b/sets/one: .*download"):
        convert(URL, tmp_path / "out.pack", kind=kind)
    assert not (tmp_path / "out.pack").exists()


@pytest.mark.parametrize(
    ("put", "says"),
    [
        ({}, "nothing is there"),
        ({"sets/one": b"a tar"}, "is one object"),
        ({"sets/one/packer.json": b"{}", "sets/one/part-00000": b""}, "is a pack"),
    ],
)
def test_what_is_no_folder_of_files_is_told(
    tmp_path: Path, object_server: ObjectServer, put: dict[str, bytes], says: str
) -> None:
    for key, data in put.items():
        object_server.put(key, data)
    with pytest.raises(InvalidRequest, match=f"s3://b/sets/one: {says}"):
        convert(URL, tmp_path / "out.pack")


def test_names_that_no_folder_could_hold_are_refused(object_server: ObjectServer) -> None:
    for name in ("A.jpg", "a.jpg"):
        object_server.put(f"sets/one/{name}", image(1))
    with pytest.raises(BadInput, match="a.jpg.* in the way.*A.jpg"):
        open_tree(URLPath(URL))
    object_server.put("sets/one/x\x07.jpg", image(1))
    with pytest.raises(StorageError, match="invalid path: .*rename") as raised:
        open_tree(URLPath(URL))
    assert "\x07" not in str(raised.value)


def test_an_empty_object_in_the_name_of_a_folder_is_one(object_server: ObjectServer) -> None:
    object_server.put("sets/one/cats", b"")  # a listing says of `cats/` what it says of `cats`
    object_server.put("sets/one/cats/1.png", image(1))
    object_server.put("sets/one/empty", b"")
    contents = open_tree(URLPath(URL)).contents
    assert contents is not None
    assert (list(contents.names), list(contents.folders)) == (["cats/1.png", "empty"], ["cats"])


def test_a_file_that_is_replaced_after_the_listing_is_an_error(object_server: ObjectServer) -> None:
    object_server.put("sets/one/1.png", image(1))
    tree = open_tree(URLPath(URL))
    before = tree.state("1.png")
    object_server.put("sets/one/1.png", image(2))
    with pytest.raises(BadInput, match=r"s3://b/sets/one/1\.png: changed"):
        tree.read("1.png")
    with pytest.raises(BadInput, match="changed"):
        tree.start("1.png", 4)
    assert open_tree(URLPath(URL)).state("1.png") != before


def test_an_interrupted_conversion_goes_on_only_with_the_same_objects(
    tmp_path: Path, object_server: ObjectServer
) -> None:
    photos(tmp_path / "in")
    object_server.put_folder(tmp_path / "in", "sets/one/")
    object_server.faults = [Fault("403", key=".jpg", times=1)]
    with pytest.raises(StorageError, match="not allowed"):
        convert(URL, tmp_path / "out.pack")
    summary = convert(URL, tmp_path / "out.pack")
    convert(tmp_path / "in", tmp_path / "same.pack")
    assert summary.pack_id == manifests.read(tmp_path / "same.pack").pack_id


def test_many_files_are_asked_for_at_once(tmp_path: Path, object_server: ObjectServer) -> None:
    for number in range(64):
        object_server.put(f"sets/one/{number:02d}.png", image(number, height=200, width=300))
    object_server.delay_seconds = 0.02
    object_server.most_at_once = 0
    assert convert(URL, tmp_path / "out.pack", kind="folder").samples == 64
    assert object_server.most_at_once >= 8
    assert object_server.count("GET", ".png") <= 64 + 16  # each once, but for what is looked at to plan
