"""Bounds of a manifest: exact at their edges, the same for the writer, and no honest pack beyond them."""

import json
from pathlib import Path

import pytest

from packer.conversion.convert import convert_source
from packer.conversion.options import ConversionOptions
from packer.conversion.source_spec import SourceSpec
from packer.errors import BadInputs, CorruptPack, InvalidRequest, shortened
from packer.pack import manifest as manifests
from tests.support import built_packs, source_trees
from tests.support.built_packs import make_pack

EDGES = {
    "values": (
        b"[" + b"0," * (manifests.MOST_VALUES - 1) + b"0]",
        b"[" + b"0," * manifests.MOST_VALUES + b"0]",
    ),
    "levels": (b"[" * 256 + b"]" * 256, b"[" * 257 + b"]" * 257),
    "levels of both sorts": (b'[{"a":' * 128 + b"1" + b"}]" * 128, b'[{"a":' * 129 + b"1" + b"}]" * 129),
    "text": (
        b'"' + b"x" * manifests.MOST_TEXT_BYTES + b'"',
        b'"' + b"x" * (manifests.MOST_TEXT_BYTES + 1) + b'"',
    ),
    "text of quotes": (b'"' + b'\\"' * (1 << 15) + b'"', b'"' + b'\\"' * (1 << 15) + b'x"'),
    "text of backslashes": (b'"' + b"\\\\" * (1 << 15) + b'"', b'"' + b"\\\\" * (1 << 15) + b'x"'),
    "number": (b"[" + b"1" * 40 + b"]", b"[" + b"1" * 41 + b"]"),
    "bytes": (b'"x"'.ljust(manifests.MOST_BYTES), b'"x"'.ljust(manifests.MOST_BYTES + 1)),
}
HIDDEN = {
    "brackets in a text": b'["' + b"[" * 5000 + b'"]',
    "commas in a text": b'["' + b"," * 60_000 + b'"]',
    "brackets behind an escaped quote": b'["\\"' + b"[" * 5000 + b'"]',
    "brackets behind escaped backslashes": b'["\\\\\\"' + b"[" * 5000 + b'"]',
    "digits in a text": b'["' + b"1" * 5000 + b'"]',
}


@pytest.mark.parametrize("what", EDGES)
def test_bounds_are_exact(what: str) -> None:
    within, beyond = EDGES[what]
    assert manifests.excess(within) is None
    assert manifests.excess(beyond) is not None


@pytest.mark.parametrize("what", HIDDEN)
def test_what_stands_in_a_text_is_no_structure(what: str) -> None:
    json.loads(HIDDEN[what])
    assert manifests.excess(HIDDEN[what]) is None


def test_structure_behind_a_text_that_ends_in_a_backslash_is_seen() -> None:
    assert manifests.excess(b'["\\\\",' + b"[" * 300 + b"]" * 300 + b"]") is not None


def test_a_reason_is_cut_in_its_middle() -> None:
    assert shortened("x" * 4000) == "x" * 4000
    found = shortened("a" * 5000 + "b" * 5000)
    assert len(found) == 4000
    assert (found[0], found[-1]) == ("a", "b")


def folder(root: Path, bad: int) -> Path:
    """An image folder with images that cannot be decoded."""
    source = root / "photos"
    source.mkdir()
    for number in range(4):
        (source / f"good-{number}.png").write_bytes(source_trees.image(number))
    for number in range(bad):
        (source / f"bad-{number:03d}.png").write_bytes(source_trees.image(number)[:-30])
    return source


def packed(source: Path, target: Path, options: ConversionOptions) -> int:
    return convert_source(SourceSpec("folder").open(source)[0], target, options, threads=1).samples


def test_more_samples_left_out_than_a_manifest_lists_end_the_conversion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = folder(tmp_path, 40)
    assert packed(source, tmp_path / "a.pack", ConversionOptions(on_error="skip")) == 4
    monkeypatch.setattr(manifests, "MOST_VALUES", 300)
    with pytest.raises(BadInputs, match="packer.json can list"):
        packed(source, tmp_path / "b.pack", ConversionOptions(on_error="skip"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pack", "photos"]
    with pytest.raises(BadInputs, match="40 of 44"):  # these are all of them
        packed(source, tmp_path / "c.pack", ConversionOptions())


def test_what_could_not_be_read_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = folder(tmp_path, 0)
    monkeypatch.setattr(manifests, "MOST_OPTIONS_BYTES", 100)
    with pytest.raises(InvalidRequest, match=r"packer\.json.*\d+ bytes.*options"):
        packed(source, tmp_path / "a.pack", ConversionOptions())
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]


@pytest.mark.parametrize("name", ["BYTES", "VALUES", "TEXT_BYTES", "LEVELS"])
def test_reader_and_writer_refuse_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    manifest = make_pack(tmp_path / "a.pack", built_packs.records(3), parts=1)
    manifest.check()
    manifests.read(tmp_path / "a.pack")
    monkeypatch.setattr(manifests, f"MOST_{name}", 3)
    with pytest.raises(InvalidRequest, match="would have"):
        manifest.check()
    with pytest.raises(CorruptPack, match="hostile or damaged"):
        manifests.read(tmp_path / "a.pack")
