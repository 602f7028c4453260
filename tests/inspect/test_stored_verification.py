"""Verification of packs behind URLs, and what `packer info` says of them: as of the same pack in a folder."""

import json
from pathlib import Path

import pytest

import packer
from packer import formats
from packer.conversion.convert import convert
from packer.errors import InvalidRequest
from packer.pack import manifest as manifests
from tests.support import source_trees
from tests.support.command_line import run_here
from tests.support.object_server import Fault, ObjectServer

URL = "s3://b/photos.pack"
SUFFIX = formats.load("lmdb").SUFFIX


@pytest.fixture
def pack(tmp_path: Path, object_server: ObjectServer) -> Path:
    """A pack of two parts in a folder, and the same behind URL."""
    for number in range(6):
        source_trees.write(tmp_path / "photos", {f"{number % 2}/{number}.png": source_trees.image(number)})
    source_trees.write(tmp_path / "photos", {"readme.txt": "of no sample"})
    convert(tmp_path / "photos", tmp_path / "photos.pack", part_bytes=30_000)
    object_server.put_folder(tmp_path / "photos.pack", "photos.pack/")
    return tmp_path / "photos.pack"


def test_a_sound_pack_has_no_problem(pack: Path, object_server: ObjectServer) -> None:
    for url in (URL, f"{object_server.endpoint}/b/photos.pack"):
        assert packer.verify(url).ok
        assert packer.verify(url, level="quick").ok
    parts = len(manifests.read(pack).parts)
    object_server.requests.clear()
    assert packer.verify(URL).ok
    assert object_server.count("GET", SUFFIX) == parts > 1
    object_server.requests.clear()
    assert packer.verify(URL, level="quick").ok
    assert object_server.count("GET", SUFFIX) == 0


@pytest.mark.parametrize("name", ["packer.json", f"part-00001{SUFFIX}", "index/crc32.npy", "extras/0"])
def test_a_flipped_byte_of_any_file_is_found(pack: Path, object_server: ObjectServer, name: str) -> None:
    key = next(key for key in object_server.objects if key.startswith(f"photos.pack/{name}"[:-1]))
    data = bytearray(object_server.objects[key].data)
    data[len(data) // 2] ^= 1
    object_server.put(key, bytes(data))
    found = packer.verify(URL)
    assert len(found.problems) == 1
    assert f"s3://b/{key}: damaged" in found.problems[0]


def test_what_is_missing_cut_or_more_is_named(pack: Path, object_server: ObjectServer) -> None:
    del object_server.objects[f"photos.pack/part-00000{SUFFIX}"]
    object_server.put(f"photos.pack/part-00001{SUFFIX}", b"short")
    object_server.put("photos.pack/other", b"")
    object_server.put("photos.pack/.partial/plan.json", b"{}")
    found = sorted(packer.verify(URL, level="quick").problems)
    assert [problem.partition(": ")[2].partition(";")[0] for problem in found] == [
        "unknown object: the manifest does not list it",
        "missing",
        f"cut or changed: 5 bytes, expected {manifests.read(pack).parts[1].bytes}",
    ]


def test_a_byte_that_changes_on_the_way_is_found(pack: Path, object_server: ObjectServer) -> None:
    object_server.faults = [Fault("flip", key=f"part-00000{SUFFIX}")]
    assert any("part-00000" in problem and "damaged" in problem for problem in packer.verify(URL).problems)


def test_an_expected_digest_is_compared(pack: Path, object_server: ObjectServer) -> None:
    assert any(
        "another pack than expected" in each for each in packer.verify(URL, expect=f"sha256:{'0' * 64}").problems
    )
    with pytest.raises(InvalidRequest, match="64 hex digits"):
        packer.verify(URL, expect="sha256:1")


def test_what_needs_a_disk_is_refused(pack: Path, object_server: ObjectServer) -> None:
    with pytest.raises(InvalidRequest, match="--level full.*--subset.*disk"):
        packer.verify(URL, level="full")
    with pytest.raises(InvalidRequest, match="on a disk"):
        packer.verify(URL, subset="1/2")
    with pytest.raises(InvalidRequest, match="not a pack: .*s3://b/none/packer.json"):
        packer.verify("s3://b/none")


def test_the_commands_say_of_a_url_what_they_say_of_a_folder(pack: Path, object_server: ObjectServer) -> None:
    for words in (["info", "--json"], ["info", "--keys"]):
        assert run_here(*words, URL).stdout == run_here(*words, str(pack)).stdout
    assert run_here("info", URL).stdout == run_here("info", str(pack)).stdout.replace(str(pack), URL)
    assert json.loads(run_here("verify", "--json", URL).stdout)["ok"]
    object_server.objects.pop(f"photos.pack/part-00000{SUFFIX}")
    assert run_here("verify", URL).returncode == 3
