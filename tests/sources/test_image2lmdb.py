"""Image2LMDB: what is read of real payloads and names that several files had."""

from pathlib import Path

import pytest

from packer.conversion.source_spec import SourceSpec
from packer.errors import BadInput, InvalidRequest
from packer.sources._recognition import detect
from packer.sources.records.image2lmdb import Source
from tests.support.arrow_payloads import VERSIONS, built, of_image, recorded
from tests.support.foreign_files import lmdb_environment
from tests.support.source_trees import image, image2lmdb, write

# in the order of ImageFolder: class by class, in it folder by folder, file by file
NAMES = ("a/1.png", "a/2.png", "a/b/1.png", "a-b/0.PNG", "c/3 4.png")


def made(root: Path, names: tuple[str, ...] = NAMES) -> Path:
    """The LMDB of that folder, with its list of names."""
    names = tuple(sorted(names, key=lambda name: (name.partition("/")[0], name.rpartition("/")[0], name)))
    entries = {str(at).encode(): built(image(NAMES.index(name))) for at, name in enumerate(names)}
    entries |= {b"__keys__": built([str(at).encode() for at in range(len(names))]), b"__len__": built(len(names))}
    path = lmdb_environment(root / "train.lmdb", entries, is_folder=False)
    lines = "".join(f"{name.rpartition('/')[2]} {at}\n" for at, name in enumerate(names))
    write(root, {"train_images_idx.txt": lines})
    return path


@pytest.mark.parametrize("version", VERSIONS)
def test_payloads_of_the_real_pyarrow_are_read(tmp_path: Path, version: str) -> None:
    entries = {str(at).encode(): of_image(version, b"picture %02d" % at) for at in (0, 1, 10)}
    entries |= {b"__keys__": recorded(version)["keys"], b"__len__": recorded(version)["length"]}
    root = lmdb_environment(tmp_path / "train.lmdb", entries, is_folder=False)
    assert detect(root)[0] == "image2lmdb"
    source = Source(root)
    assert [source[row]["image"] for row in range(3)] == [b"picture %02d" % at for at in (0, 1, 10)]
    assert [source.key(row) for row in range(3)] == ["00000000", "00000001", "00000010"]
    assert any("no labels" in note for note in source.notes)
    assert source.schema.names == ("key", "image", "files")


def test_names_come_from_the_list_where_each_is_there_once(tmp_path: Path) -> None:
    source = Source(image2lmdb(tmp_path / "one"))
    assert [source.key(row) for row in (0, 3, 11)] == ["000.png", "003 a.png", "011.png"]
    assert source.extras == ["README.md"]
    assert source.tables == ["train_images_idx.txt"]
    source = Source(made(tmp_path / "several"))
    assert [source.key(row) for row in range(2)] == ["00000000", "00000001"]


@pytest.mark.parametrize("line", ["a.png", "a.png x", " 1", "a.png 0\nb.png 0"])
def test_a_list_that_is_none_is_an_error_with_its_line(tmp_path: Path, line: str) -> None:
    root = made(tmp_path)
    write(tmp_path, {"train_images_idx.txt": line})
    with pytest.raises(BadInput, match=r"train_images_idx.txt: line \d: .*number"):
        Source(root)


def test_pairs_and_damage_are_named(tmp_path: Path) -> None:
    entries = {b"0": built(image(0)), b"1": built(image(1)), b"2": built((image(2), 1))}
    entries[b"__keys__"] = built([b"0", b"1", b"2"])
    source = Source(lmdb_environment(tmp_path / "a.lmdb", entries, is_folder=False))
    with pytest.raises(BadInput, match=r"a.lmdb: .*\(00000002\): .*bytes alone"):
        source[2]
    root = lmdb_environment(tmp_path / "b.lmdb", {b"0": entries[b"2"], b"__keys__": built([b"0"])}, is_folder=False)
    assert detect(root)[0] == "efficient-lmdb"
    with pytest.raises(InvalidRequest, match="list; .*efficient-lmdb"):
        SourceSpec("image2lmdb").open(root)
