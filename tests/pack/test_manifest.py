"""packer.json: any change is noticed, hostile content is refused by the right class, the bytes are canonical."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.errors import CorruptPack, InvalidRequest, PackerError
from packer.pack import manifest as manifests
from packer.pack.manifest import IndexFile, Manifest, Part
from tests.support import built_packs
from tests.support.child_processes import child
from tests.support.hostile_manifest_values import HOSTILE, SHA, written

MANIFEST = Manifest(
    format="lmdb",
    samples=3,
    schema=built_packs.SCHEMA,
    options={"to": "lmdb", "codecs": [["blob", "encoded"]]},
    source={"kind": "folder", "digest": SHA},
    parts=(Part("part-00000.lmdb", 1, 10, SHA), Part("part-00001.lmdb", 2, 20, SHA)),
    index=(IndexFile("keys.npy", 100, 7, SHA),),
    written_by="packer 0.1.0",
    skipped=(("bad/\udcff.jpg", "cut"), ("schön \U0001f600.png", 'a "quoted" reason\n')),
).sealed()


def canonical(data: Any) -> bytes:
    """The form that the module documents."""
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode() + b"\n"


def sealed(data: dict[str, Any], *, pack_id: bool = True) -> bytes:
    """The bytes of a manifest whose hashes fit what it says, however hostile that is."""
    if pack_id:
        files = [[file["name"], file["sha256"]] for file in (*data["parts"], *data["index"])]
        data = {**data, "pack_id": hashlib.sha256(canonical({"files": files, "options": data["options"]})).hexdigest()}
    return canonical({**data, "sha256": hashlib.sha256(canonical({**data, "sha256": "0" * 64})).hexdigest()})


def described() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(MANIFEST.to_bytes())
    return data


texts = st.text(st.characters(codec=None), max_size=8)  # surrogates too
values = st.recursive(st.none() | st.booleans() | st.integers() | texts, lambda inner: st.lists(inner, max_size=3))


@given(
    options=st.dictionaries(texts, values, max_size=3),
    skipped=st.lists(st.tuples(texts, texts), max_size=3).map(tuple),
    counts=st.lists(st.integers(0, 1 << 50), max_size=4),
)
def test_any_manifest_survives_the_disk(
    tmp_path_factory: pytest.TempPathFactory, options: dict[str, Any], skipped: Any, counts: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("pack")
    parts = tuple(Part(f"part-{number:05d}.x", count, count, SHA) for number, count in enumerate(counts))
    facts = (options, MANIFEST.source, parts, MANIFEST.index, "packer", skipped)
    manifest = Manifest("x", sum(counts), built_packs.SCHEMA, *facts).sealed()
    assert manifests.read(written(folder, manifest.to_bytes())) == manifest


def test_the_bytes_are_canonical_ascii_with_one_final_newline() -> None:
    raw = MANIFEST.to_bytes()
    assert raw == canonical(json.loads(raw))
    assert raw.isascii()
    assert raw.endswith(b"}\n")
    assert sealed(described()) == raw


def test_the_pack_id_depends_on_parts_index_and_options_alone() -> None:
    data = described()
    assert json.loads(sealed({**data, "written_by": "packer 9", "source": {}}))["pack_id"] == data["pack_id"]
    assert json.loads(sealed({**data, "options": {}}))["pack_id"] != data["pack_id"]
    assert json.loads(sealed({**data, "parts": data["parts"][:1]}))["pack_id"] != data["pack_id"]
    assert json.loads(sealed({**data, "index": []}))["pack_id"] != data["pack_id"]


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.full)])
def test_flipped_bits_are_noticed(tmp_path: Path, step: int) -> None:
    raw = MANIFEST.to_bytes()
    for bit in range(0, len(raw) * 8, step):
        damaged = bytearray(raw)
        damaged[bit >> 3] ^= 1 << (bit & 7)
        with pytest.raises(CorruptPack):
            manifests.read(written(tmp_path, bytes(damaged)))


def test_every_cut_and_anything_appended_is_noticed(tmp_path: Path) -> None:
    raw = MANIFEST.to_bytes()
    for damaged in [*(raw[:size] for size in range(len(raw))), raw + b"\n", raw + b" ", b" " + raw, raw * 2]:
        with pytest.raises(CorruptPack):
            manifests.read(written(tmp_path, damaged))


def test_the_same_content_in_another_form_is_noticed(tmp_path: Path) -> None:
    data = json.loads(MANIFEST.to_bytes())
    forms = [
        json.dumps(data, sort_keys=True).encode() + b"\n",
        json.dumps(dict(reversed(data.items())), separators=(",", ":")).encode() + b"\n",
        b"\xef\xbb\xbf" + MANIFEST.to_bytes(),
        MANIFEST.to_bytes().decode().encode("utf-16"),
        MANIFEST.to_bytes().replace(b"sch\\u00f6n", "schön".encode()),
        MANIFEST.to_bytes().replace(b"\\udcff", b"\\uDCFF"),
    ]
    for form in forms:
        assert form != MANIFEST.to_bytes()
        with pytest.raises(CorruptPack):
            manifests.read(written(tmp_path, form))


# ---- hostile manifests, with hashes that fit


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_manifest_is_refused(tmp_path: Path, what: str) -> None:
    change, expected = HOSTILE[what]
    data = described()
    change(data)
    with pytest.raises(PackerError) as caught:
        manifests.read(written(tmp_path, sealed(data)))
    assert type(caught.value) is expected
    assert str(tmp_path / manifests.NAME) in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("name", ["parts", "index", "options", "pack_id"])
def test_what_the_pack_id_is_made_of_must_be_there(tmp_path: Path, name: str) -> None:
    data = described()
    del data[name]
    with pytest.raises(CorruptPack):
        manifests.read(written(tmp_path, sealed(data, pack_id=False)))


@pytest.mark.parametrize("value", ["", "0" * 64, 7, None])
def test_another_pack_id_is_refused(tmp_path: Path, value: Any) -> None:
    with pytest.raises(CorruptPack):
        manifests.read(written(tmp_path, sealed({**described(), "pack_id": value}, pack_id=False)))


def test_one_place_of_the_sha256_counts_as_zeros(tmp_path: Path) -> None:
    data = described()
    data = {**data, "sha256": "0" * 64, "source": {**data["source"], "sha256": "0" * 64}}
    zeros = canonical(data)
    own = hashlib.sha256(zeros).hexdigest()
    with pytest.raises(CorruptPack, match="does not have its sha256"):
        manifests.read(written(tmp_path, zeros.replace(b"0" * 64, own.encode())))


RAW = {
    "empty": b"",
    "a list": b"[]\n",
    "text": b'"packer"\n',
    "null": b"null\n",
    "no UTF-8": b"\xff\xfe{}\n",
    "NUL bytes": bytes(100),
    "deep": b"[" * 1_000_000,
    "deep object": b'{"magic":"packer","a":' * 100_000,
    "deep and closed": b'{"magic":"packer","options":' + b"[" * 900 + b"]" * 900 + b"}\n",
    "deeper and closed": b'{"magic":"packer","options":' + b"[" * 50_000 + b"]" * 50_000 + b"}\n",
    "NaN": b'{"magic":"packer","samples":NaN}\n',
    "Infinity": b'{"magic":"packer","samples":-Infinity}\n',
    "infinity by overflow": b'{"magic":"packer","samples":1e999,"sha256":"","version":1}\n',
    "a number of 10 000 digits": b'{"magic":"packer","samples":' + b"1" * 10_000 + b"}\n",
    "a member twice": b'{"magic":"packer","magic":"packer"}\n',
    "an inner member twice": b'{"magic":"packer","options":{"a":1,"a":2}}\n',
    "of another program": b'{"builders": [{"type": "amazon-ebs"}]}\n',
}


@pytest.mark.one_in(5)
@pytest.mark.parametrize("what", RAW)
def test_what_is_no_manifest_is_refused(tmp_path: Path, what: str) -> None:
    folder = written(tmp_path, RAW[what])

    def read() -> None:
        manifests.read(folder)

    outcome = child(read)  # depth may exhaust the stack of C code in some interpreters
    assert (outcome.kind, outcome.error) == ("error", "CorruptPack"), outcome
    assert len(outcome.message) < 600


def test_a_manifest_beyond_the_limit_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / manifests.NAME).open("wb") as file:
        file.truncate(1 << 40)  # sparse
    with pytest.raises(CorruptPack, match="33,554,432 bytes"):
        manifests.read(tmp_path)


def test_a_folder_without_manifest_is_no_pack(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere", written(tmp_path, b"x") / manifests.NAME):
        if folder == tmp_path:
            (tmp_path / manifests.NAME).unlink(missing_ok=True)
        with pytest.raises(InvalidRequest, match="not a pack"):
            manifests.read(folder)


def test_a_manifest_that_is_no_file_is_refused_without_waiting(tmp_path: Path) -> None:
    for name, make in (("fifo", os.mkfifo), ("folder", os.mkdir), ("link", lambda path: os.symlink("/dev/zero", path))):
        folder = tmp_path / name
        folder.mkdir()
        make(folder / manifests.NAME)
        outcome = child(lambda folder=folder: str(manifests.read(folder)), timeout_seconds=20)
        assert (outcome.kind, outcome.error) == ("error", "CorruptPack"), (name, outcome)
