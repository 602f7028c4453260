"""Size and digest of a part that is a folder."""

from pathlib import Path

import pytest

from packer.errors import CorruptPack
from packer.files.digest import part_bytes, part_sha256
from tests.support import source_trees


def test_the_digest_depends_on_names_sizes_and_contents_alone(tmp_path: Path) -> None:
    found = set()
    for number, names in enumerate((["b", "a/x", "a.x", "é"], ["é", "a.x", "a/x", "b"])):
        source_trees.write(tmp_path / str(number), {name: name * 3 for name in names})
        found.add((part_sha256(tmp_path / str(number)), part_bytes(tmp_path / str(number))))
    assert len(found) == 1
    for change in ({"b": "bb"}, {"b": "bbx"}, {"c": ""}, {"a/b": "x"}):
        source_trees.write(tmp_path / "other", {"b": "bbb", "a/x": "a/x" * 3, "a.x": "a.x" * 3, "é": "ééé"})
        source_trees.write(tmp_path / "other", change)
        found.add((part_sha256(tmp_path / "other"), part_bytes(tmp_path / "other")))
    (tmp_path / "1/b").rename(tmp_path / "1/c")
    found.add((part_sha256(tmp_path / "1"), part_bytes(tmp_path / "1")))
    (tmp_path / "0/empty").mkdir()
    found.add((part_sha256(tmp_path / "0"), part_bytes(tmp_path / "0")))
    assert len(found) == 7
    (tmp_path / "0/link").symlink_to("b")
    for function in (part_sha256, part_bytes):
        with pytest.raises(CorruptPack, match="link or a device"):
            function(tmp_path / "0")
