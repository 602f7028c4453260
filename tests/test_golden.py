"""Golden packs: what packer wrote when a version was new is read for ever, and today's writer still writes it.

The packs of formats and codecs have version 1. Today's conversion writes the files of version 1, and more in index/.

The bytes of a part are compared where the library that lays it out has the version that the golden pack was written
with (lmdb: py-lmdb; hdf5: HDF5 itself; pth: torch; bmp: NumPy): another version may lay it out in another way.
Encoded images are compared where OpenCV has that version: another one may compress in another way. The records that
the container gives back, the index and all decoded values are compared always. Seen to give the same bytes when this
was written: py-lmdb 2.1.1 and 3.0.0, HDF5 1.14.4 and 2.0; no other torch than the one that is noted was tried.
"""

import hashlib
import json
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from packer import codecs, formats
from packer.errors import CorruptPack, InvalidRequest
from packer.inspect.extraction import extract
from packer.pack import manifest as manifests
from packer.pack import verification
from packer.pack.manifest import VERSION
from packer.pack.sample_index import merge
from packer.schema import KINDS
from scripts import make_golden
from tests.support import built_packs
from tests.support.sample_digests import field_digests

pytestmark = pytest.mark.jpeg

CONTAINERS = {
    "lmdb": "lmdb",
    "hdf5": "hdf5",
    "pth": "torch",
    "bmp": "numpy",
    "tfrecord": "numpy",
    "webdataset": "numpy",
    "recordio": "numpy",
    "caffe-lmdb": "lmdb",
    "efficient-lmdb": "lmdb",
    "basicsr-lmdb": "lmdb",
    "n5": "numpy",
}  # format -> library that lays the file out
FORMATS = formats.names()
OF_VERSIONS = [f"version-{VERSION}"]
OF_CODECS = sorted(path.name for path in make_golden.GOLDEN.glob("codec-*"))


def golden(name: str) -> Path:
    folder = make_golden.GOLDEN / name / "pack"
    assert folder.is_dir(), f"no golden pack of format {name}: scripts/make_golden.py {name}"
    return folder


def noted(name: str) -> dict[str, Any]:
    """What was written down beside the pack."""
    found: dict[str, Any] = json.loads((make_golden.GOLDEN / name / "digests.json").read_text())
    return found


def same_version(name: str, library: str) -> bool:
    return bool(noted(name)["written_with"].get(library) == make_golden.versions().get(library))


@pytest.mark.parametrize("name", [*FORMATS, *OF_CODECS, *OF_VERSIONS])
def test_it_opens_verifies_and_gives_the_values_of_then(name: str) -> None:
    folder = golden(name)
    before = built_packs.snapshot(folder)
    assert manifests.read(folder).format == make_golden.asked(name)[0]
    assert [*verification.problems(folder, level="full")] == []
    assert list(field_digests(folder)) == noted(name)["sha256"]
    assert built_packs.snapshot(folder) == before


@pytest.mark.parametrize("decoder", ["turbojpeg", "opencv"])
@pytest.mark.parametrize("name", FORMATS)
def test_every_decoder_gives_the_values_of_then(name: str, decoder: str) -> None:
    assert list(field_digests(golden(name), decoder=decoder)) == noted(name)["sha256"]


@pytest.mark.parametrize("name", FORMATS)
def test_it_is_small_and_holds_every_kind_and_codec(name: str) -> None:
    manifest = manifests.read(golden(name))
    assert sum(path.stat().st_size for path in golden(name).rglob("*") if path.is_file()) < 60_000
    assert {field.kind for field in manifest.schema} == set(KINDS)
    assert manifest.extras and manifest.skipped and manifest.incomplete


def test_every_codec_is_in_some_golden_pack() -> None:
    every = [field for name in (*FORMATS, *OF_CODECS) for field in manifests.read(golden(name)).schema]
    lacking = set(codecs.names()) - {field.codec_name for field in every}
    assert not lacking, f"no golden pack holds codec {lacking}: scripts/make_golden.py writes one, once"


@pytest.mark.parametrize("name", FORMATS)
def test_what_was_kept_is_extracted(name: str, tmp_path: Path) -> None:
    found = extract(golden(name), tmp_path / "back")
    assert (found.exact, found.reencoded) == (make_golden.SAMPLES + len(make_golden.EXTRAS), 0)
    assert (tmp_path / "back/z.txt").read_bytes() == make_golden.EXTRAS["z.txt"]


@pytest.mark.parametrize("name", [*FORMATS, *OF_VERSIONS])
def test_todays_writer_writes_the_same_records_index_and_manifest(name: str, tmp_path: Path) -> None:
    """The records of then through the Writer of today: encoders have no part in this."""
    folder, manifest = golden(name), manifests.read(golden(name))
    records = built_packs.values(folder)
    (part,) = manifest.parts
    written = {"format": manifest.format, "schema": manifest.schema, "listed": manifest.index_names}
    piece = built_packs.write_part(tmp_path / part.name, records, **written)
    piece.save(tmp_path / "piece")
    index = merge([tmp_path / "piece"], tmp_path, manifest.schema, listed=manifest.index_names)
    assert {file.name: file.sha256 for file in index} == {file.name: file.sha256 for file in manifest.index}
    assert manifest.to_bytes() == (folder / manifests.NAME).read_bytes()
    reader = formats.load(manifest.format).Reader(tmp_path / part.name, manifest.schema, samples=len(records))
    with closing(reader):
        for row, record in enumerate(records):
            assert {key: bytes(value) for key, value in reader.read(row, manifest.schema.names).items()} == record
    if same_version(name, CONTAINERS.get(manifest.format, "")):
        assert files(tmp_path / part.name) == files(folder / part.name)


@pytest.mark.parametrize("name", [*FORMATS, *OF_VERSIONS])
def test_todays_conversion_gives_the_same_values_and_bytes(name: str, tmp_path: Path) -> None:
    make_golden.write(name, tmp_path / name, tmp_path / "work")
    fresh, old, manifest = tmp_path / name / "pack", golden(name), manifests.read(golden(name))
    assert list(field_digests(fresh)) == noted(name)["sha256"]
    if same_version(name, "opencv-python"):
        assert built_packs.values(fresh) == built_packs.values(old)
        if same_version(name, CONTAINERS.get(manifest.format, "")):
            more = manifests.read(fresh).files - manifest.files
            assert {path: sha256 for path, sha256 in files(fresh).items() if path not in more} == files(old)
            assert more or manifest.version == VERSION


def files(folder: Path) -> dict[str, str]:
    """Relative path -> sha256 of every file but the manifest, which names packer's version; or of the one file."""
    inner = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    found = {name: path for name, path in inner.items() if name != manifests.NAME} or {"": folder}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in found.items()}


def test_the_script_refuses_to_overwrite(monkeypatch: pytest.MonkeyPatch) -> None:
    before = built_packs.snapshot(make_golden.GOLDEN)
    monkeypatch.setattr(sys, "argv", ["make_golden.py", *FORMATS])
    with pytest.raises(SystemExit, match="meant to stay"):
        make_golden.main()
    monkeypatch.setattr(sys, "argv", ["make_golden.py"])
    make_golden.main()
    assert built_packs.snapshot(make_golden.GOLDEN) == before


# ---- other versions


def resealed(folder: Path, **changes: Any) -> Path:
    """A copy of the golden manifest with changed members, its own hash right."""
    data = json.loads((golden("lmdb") / manifests.NAME).read_text()) | changes
    folder.mkdir()
    (folder / manifests.NAME).write_bytes(manifests.hashed(data))
    return folder


def test_a_higher_version_is_refused_with_what_helps(tmp_path: Path) -> None:
    folder = resealed(tmp_path / "new.pack", version=VERSION + 1, members_of_the_future={"a": 1}, parts="elsewhere")
    with pytest.raises(InvalidRequest, match=rf"version {VERSION + 1}.*newer"):
        manifests.read(folder)


def test_an_unknown_member_of_this_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorruptPack, match="not what packer"):
        manifests.read(resealed(tmp_path / "more.pack", more=1))


def test_a_version_that_changes_nothing_else_is_refused_too(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="newer packer"):
        manifests.read(resealed(tmp_path / "new.pack", version=1 << 40))


def test_extras_that_are_written_out_empty_are_refused(tmp_path: Path) -> None:
    """There is one form for a pack without them."""
    with pytest.raises(CorruptPack):
        manifests.read(resealed(tmp_path / "odd.pack", extras=[]))
