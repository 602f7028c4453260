"""Sidecars: fields from files beside the samples of any source."""

import pickle
from pathlib import Path

import pytest

from packer.errors import BadIndex, BadInput, Refused
from packer.sources import cornell as cornell_source
from packer.sources import folder
from packer.sources.adding.sidecars import Sidecar, add_sidecars
from tests.trees import cornell, depth, mask, picture, write

DEPTH = Sidecar("depth", "_d.tiff", "depth")
CAPTION = Sidecar("caption", ".txt", "text")
META = Sidecar("meta", ".json", "json")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("a", "b.c"):
        write(
            tmp_path / "x",
            {
                f"{name}.png": picture(1),
                f"{name}_d.tiff": depth(1),
                f"{name}.txt": "häuser\n",
                f"{name}.json": '{"n": [1, 2.5, null]}',
                f"{name}_m.npy": b"\x93NUMPY...",
            },
        )
    return tmp_path


def images(root: Path) -> folder.Source:
    return folder.Source(root, ignore_suffixes=("_d.tiff",))


def test_parse_reads_name_suffix_and_kind() -> None:
    assert Sidecar.parse("depth=_d.tiff:depth") == DEPTH
    assert Sidecar.parse("m=.a:b=c.npy:mask") == Sidecar("m", ".a:b=c.npy", "mask")


@pytest.mark.parametrize(
    "text", ["", "depth", "depth=_d.tiff", "_d.tiff:depth", "d=:depth", "d=/x.png:mask", "d=x:boxes"]
)
def test_parse_refuses_what_is_no_sidecar(text: str) -> None:
    with pytest.raises(Refused, match="expected"):
        Sidecar.parse(text)


def test_fields_are_added_to_every_sample(root: Path) -> None:
    source = add_sidecars(images(root), [DEPTH, CAPTION, META, Sidecar("raw", "_m.npy", "bytes")])
    assert source.schema.names == ("key", "image", "label", "depth", "caption", "meta", "raw", "files")
    sample = source[1]
    assert sample["key"] == "x/b.c.png"
    assert sample["depth"] == depth(1)
    assert sample["caption"] == "häuser\n"
    assert sample["meta"] == {"n": [1, 2.5, None]}
    assert sample["raw"] == b"\x93NUMPY..."
    assert sample["files"] == {
        "image": "x/b.c.png",
        "depth": "x/b.c_d.tiff",
        "caption": "x/b.c.txt",
        "meta": "x/b.c.json",
        "raw": "x/b.c_m.npy",
    }
    assert [path.name for path in source.files(1)] == ["b.c.png", "b.c_d.tiff", "b.c.txt", "b.c.json", "b.c_m.npy"]
    assert "depth (_d.tiff)" in source.notes[-1]
    assert source.kind == "folder"


def test_the_files_of_a_grasp_set_are_extended(tmp_path: Path) -> None:
    inner = cornell_source.Source(cornell(tmp_path))
    for index in range(len(inner)):
        Path(f"{inner.stem(index)}mask.png").write_bytes(mask(index))
    source = add_sidecars(inner, [Sidecar("mask", "mask.png", "mask")])
    assert source.schema.names == (*inner.schema.names, "mask")
    assert source[0]["files"] == inner[0]["files"] | {"mask": "01/pcd0100mask.png"}
    assert source.missing(1) == inner.missing(1) is not None
    assert source.stem(0) == inner.stem(0)


def test_a_missing_partner_is_an_error_naming_all(root: Path) -> None:
    (root / "x/a_d.tiff").unlink()
    (root / "x/b.c.txt").unlink()
    with pytest.raises(BadInput, match=r"2 samples of 2 lack a sidecar file: x/a_d.tiff, x/b.c.txt; .*--missing skip"):
        add_sidecars(images(root), [DEPTH, CAPTION])


def test_a_missing_partner_leaves_the_sample_out_when_asked(root: Path) -> None:
    (root / "x/a_d.tiff").unlink()
    source = add_sidecars(images(root), [DEPTH], missing="skip")
    assert len(source) == 1
    assert source.key(0) == source[0]["key"] == "x/b.c.png"
    assert source.left_out == [("x/a.png", "no x/a_d.tiff")]
    with pytest.raises(BadIndex):
        source[1]
    with pytest.raises(Refused, match="option missing"):
        add_sidecars(images(root), [DEPTH], missing="keep")


@pytest.mark.parametrize(
    ("sidecar", "data"),
    [(CAPTION, b"\xff"), (META, b"{"), (META, b'{"x": NaN}'), (META, b"\xff"), (META, b"[" * 100_000)],
)
def test_a_file_of_another_kind_is_bad_input_with_its_path(root: Path, sidecar: Sidecar, data: bytes) -> None:
    (root / f"x/a{sidecar.suffix}").write_bytes(data)
    source = add_sidecars(images(root), [sidecar])
    with pytest.raises(BadInput, match=rf"x/a\{sidecar.suffix}: cannot read as {sidecar.kind}"):
        source[0]
    assert source[1]["key"] == "x/b.c.png"


def test_a_field_name_that_is_taken_is_refused(root: Path) -> None:
    for name in ("image", "files", "key"):
        with pytest.raises(Refused, match="not unique"):
            add_sidecars(images(root), [Sidecar(name, ".txt", "bytes")])
    with pytest.raises(Refused, match="field name"):
        add_sidecars(images(root), [Sidecar("1x", ".txt", "bytes")])


def test_a_source_without_a_picture_gets_the_paths_of_the_added_files_alone(root: Path) -> None:
    inner = images(root)
    inner.schema = inner.schema.select(["key", "label"])
    assert add_sidecars(inner, [CAPTION])[0]["files"] == {"caption": "x/a.txt"}


def test_a_wrapped_source_is_picklable(root: Path) -> None:
    source = add_sidecars(images(root), [DEPTH, META])
    copy = pickle.loads(pickle.dumps(source))
    assert [copy[index] for index in range(2)] == [source[index] for index in range(2)]
    assert copy.schema == source.schema
