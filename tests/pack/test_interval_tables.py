"""Tables of restart intervals in packs: a false one shows nobody another place, in kept files and in hostile packs."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

import packer
from packer import formats
from packer.codecs import jpeg
from packer.conversion.convert import ConversionSummary
from packer.errors import BadInputs, CorruptRecord
from packer.geometry import Geometry, View
from packer.images import decode, restart_interval_table
from packer.inspect.extraction import extract
from packer.pack import manifest as manifests
from packer.pack import verification
from tests.support import image_files, restart_jpegs, source_trees
from tests.support.conversions import packed

WHOLE = restart_jpegs.jpeg("420", height=640, width=256, mcus=16, table=True)
TOP, LEFT, SIZE = 83, 100, 30
NOTE = "the table of restart intervals in image is not that of its data: kept, and not used"


def stale(file: bytes) -> bytes:
    """Two lengths near the crop are off by one, and make up for each other."""
    lengths = restart_jpegs.lengths_of(file)
    lengths[4:6] += (1, -1)
    return restart_jpegs.with_lengths(file, lengths)


FALSE = {"shifted": restart_jpegs.shifted(WHOLE, 16), "stale": stale(WHOLE)}


@dataclass(frozen=True)
class SliceSplit(Geometry):
    """The part of the image that the tables lie about."""

    def view(self, height: int, width: int, random: object = ()) -> View:
        return View((1.0, 0.0, float(-LEFT), 0.0, 1.0, float(-TOP)), (SIZE, SIZE))


def crop_of(pack: Path, **options: object) -> image_files.Pixels:
    with restart_jpegs.through("simplejpeg"):
        found: image_files.Pixels = packer.open(pack, output="numpy", geometry=SliceSplit(), **options)[0]["image"]
    return found


def shown_by(file: bytes) -> image_files.Pixels:
    return decode(file, "image")[TOP : TOP + SIZE, LEFT : LEFT + SIZE]


def source(root: Path, file: bytes) -> Path:
    return source_trees.write(root, {"a.jpg": file})


def hostile(tmp_path: Path, format: str) -> Path:
    """A pack of codec jpeg as somebody would make it whose encoder writes shifted tables; all checksums are right."""

    def with_false_table(file: bytes, found: object) -> bytes:
        return restart_jpegs.shifted(restart_interval_table.with_table(file, found), 16)  # type: ignore[arg-type]

    root = source_trees.write(tmp_path / "in", {"a.png": source_trees.image(1, height=640, width=256)})
    with mock.patch.object(jpeg, "with_table", with_false_table), mock.patch.object(jpeg, "_interval", lambda *_: 16):
        packed(root, tmp_path / "bad.pack", to=format, codecs=(("image", "jpeg:90"),))
    return tmp_path / "bad.pack"


@contextmanager
def counted_checks() -> Iterator[list[int]]:
    """How many tables are compared with their files inside the block."""
    sizes: list[int] = []

    def check(buffer: bytes, found: object) -> None:
        sizes.append(len(buffer))
        restart_interval_table.check_table(buffer, found)  # type: ignore[arg-type]

    with mock.patch.object(jpeg, "check_table", check):
        yield sizes


# ---- kept files


@pytest.mark.one_in(9)
@pytest.mark.parametrize("validate", ["full", "header"])
@pytest.mark.parametrize("kind", FALSE)
@pytest.mark.parametrize("format", formats.names())
def test_a_false_table_of_a_kept_file_is_noted_kept_and_not_used(
    tmp_path: Path, format: str, kind: str, validate: str
) -> None:
    root = source(tmp_path / "in", FALSE[kind])
    codecs = (("image", "encoded"),)
    summary = packed(root, tmp_path / "out.pack", to=format, codecs=codecs, validate=validate)
    assert summary.incomplete == manifests.read(tmp_path / "out.pack").incomplete == (("a.jpg", NOTE),)
    assert [*verification.problems(tmp_path / "out.pack", level="full")] == []
    for verify in ("first", "always", "never", "open"):
        assert np.array_equal(crop_of(tmp_path / "out.pack", verify=verify), shown_by(WHOLE))
    packed(tmp_path / "out.pack", tmp_path / "again.pack")
    assert manifests.read(tmp_path / "again.pack").incomplete == (("a.jpg", NOTE),)
    assert np.array_equal(crop_of(tmp_path / "again.pack"), shown_by(WHOLE))
    extract(tmp_path / "again.pack", tmp_path / "back")
    assert (tmp_path / "back/a.jpg").read_bytes() == FALSE[kind]


def test_a_true_table_of_a_kept_file_leaves_no_note(tmp_path: Path) -> None:
    summary = packed(source(tmp_path / "in", WHOLE), tmp_path / "out.pack")
    assert summary.incomplete == ()
    assert np.array_equal(crop_of(tmp_path / "out.pack"), shown_by(WHOLE))


def test_a_false_table_is_noted_beside_what_a_sample_lacks(tmp_path: Path) -> None:
    root = source_trees.jacquard(tmp_path / "in")
    grasps = next(iter(sorted(root.rglob("*_grasps.txt"))))
    image = Path(str(grasps).replace("_grasps.txt", "_RGB.png"))
    grasps.unlink()
    image.write_bytes(FALSE["stale"])  # the bytes count, not the name
    summary: ConversionSummary = packed(root, tmp_path / "out.pack", fields=("rgb",))
    noted = dict(summary.incomplete)
    (both,) = (reason for reason in noted.values() if "restart intervals" in reason)
    assert both == "no _grasps.txt; " + NOTE.replace("image", "rgb")


# ---- packs of codec jpeg


@pytest.mark.one_in(6)
@pytest.mark.parametrize("format", formats.names())
def test_a_hostile_pack_shows_no_other_place(tmp_path: Path, format: str) -> None:
    """Its checksums are right; what a data set reads for the first time it compares with itself."""
    pack = hostile(tmp_path, format)
    expected = packer.open(pack, output="numpy", verify="never")[0]["image"][TOP : TOP + SIZE, LEFT : LEFT + SIZE]
    assert np.array_equal(crop_of(pack, verify="never"), expected)  # the markers are looked for
    for verify in ("first", "always", "open"):
        with pytest.raises(CorruptRecord, match="'a.png', field 'image'.*not agree"):
            crop_of(pack, verify=verify)
    with pytest.raises(CorruptRecord, match="restart markers"):
        next(iter(packer.Loader(packer.open(pack, geometry=SliceSplit()), 1)))


def test_verify_names_the_sample_and_no_pack_is_made_of_it(tmp_path: Path) -> None:
    pack = hostile(tmp_path, "lmdb")
    assert [*verification.problems(pack)] == []  # sizes and sums are right
    (problem,) = verification.problems(pack, level="full")
    assert "key 'a.png', field 'image'): does not decode: " in problem and "table of restart intervals" in problem
    with pytest.raises(BadInputs, match=r"(?s)1 of 1 .*restart intervals"):
        packed(pack, tmp_path / "again.pack")
    assert not (tmp_path / "again.pack").exists()


def test_a_table_is_compared_once_in_a_process_and_never_where_nothing_is(tmp_path: Path) -> None:
    images = {f"{name}.png": source_trees.image(at, height=320, width=480) for at, name in enumerate("abc")}
    packed(source_trees.write(tmp_path / "in", images), tmp_path / "out.pack", codecs=(("image", "jpeg:90"),))
    for verify, times in (("first", 3), ("open", 3), ("always", 6), ("never", 0)):
        dataset = packer.open(tmp_path / "out.pack", geometry=SliceSplit(), verify=verify)
        with counted_checks() as seen:
            for _ in range(2):
                for index in range(3):
                    dataset[index]
        assert len(seen) == times, verify
