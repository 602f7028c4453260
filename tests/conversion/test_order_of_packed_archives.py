"""A shuffled order of samples in a file that is compressed as one is refused where each read would unpack it again."""

from pathlib import Path

import pytest

from packer.conversion.convert import convert
from packer.errors import InvalidRequest
from packer.sources.records import _random_access_files
from tests.support.archives import packed, pax
from tests.support.source_trees import photos


@pytest.mark.parametrize("kind", ["folder", "webdataset"])
def test_what_is_kept_unpacked_is_shuffled_and_what_is_not_is_refused(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = photos(tmp_path / "in", 12)
    archive = packed(folder, tmp_path / "x")
    assert convert(archive, tmp_path / "a.pack", kind=kind, order="shuffled").samples == 12
    monkeypatch.setattr(_random_access_files, "_BLOCK_BYTES", 1000)
    with pytest.raises(InvalidRequest, match=r"x\.tar\.gz: .*--order stored"):
        convert(archive, tmp_path / "b.pack", kind=kind, order="shuffled")
    with pytest.raises(InvalidRequest, match="--order stored"):
        convert(archive, tmp_path / "b.pack", kind=kind, to="webdataset")  # its default
    assert convert(archive, tmp_path / "b.pack", kind=kind).samples == 12
    assert convert(pax(folder, tmp_path / "y"), tmp_path / "c.pack", kind=kind, order="shuffled").samples == 12


def test_several_packed_files_are_not_shuffled(tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    for number in range(2):
        packed(photos(tmp_path / f"in{number}", 3), tmp_path / f"shards/{number}")
    with pytest.raises(InvalidRequest, match="--order stored"):
        convert(tmp_path / "shards", tmp_path / "a.pack", kind="webdataset", order="shuffled")
    assert convert(tmp_path / "shards", tmp_path / "a.pack", kind="webdataset").samples == 6
