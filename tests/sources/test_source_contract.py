"""What every source promises, for every source that the folder lists; and how a source is chosen and loaded."""

import inspect
import json
import os
import pickle
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from packer import codecs, sources
from packer.errors import BadIndex, BadInput, InvalidRequest
from packer.files.safe_paths import components
from packer.schema import Field
from packer.sources import base
from packer.sources._option_table import INTERNAL, OPTIONS
from packer.sources._recognition import detect
from packer.sources._trees.folder_tree import SourceRoot
from packer.system.parallel import ordered_map
from tests.support.child_processes import forked
from tests.support.source_trees import BUILDERS, write


@pytest.fixture(params=sources.names())
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def root(name: str, tmp_path: Path) -> Path:
    assert name in BUILDERS, f"tests/support/source_trees.py has no builder for the source {name!r}"
    return BUILDERS[name](tmp_path / "data")


@pytest.fixture
def source(name: str, root: Path) -> base.Source:
    made = sources.load(name).Source(root)
    assert isinstance(made, base.Source)
    return made


def same(left: Any, right: Any) -> bool:
    if isinstance(left, dict):
        return isinstance(right, dict) and left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    if isinstance(left, np.ndarray | np.generic):
        numbers = left.dtype.kind == "f"
        return (
            type(left) is type(right) and left.dtype == right.dtype and np.array_equal(left, right, equal_nan=numbers)
        )
    return type(left) is type(right) and bool(left == right)


def fits(field: Field, value: Any) -> bool:
    if field.kind in ("points", "boxes", "number") or isinstance(value, np.ndarray):
        array = np.asarray(value)
        shape = array.shape if field.shape is None else field.shape
        lengths = zip(array.shape, shape, strict=True)
        return array.dtype == field.dtype and all(wanted in (None, length) for length, wanted in lengths)
    if field.kind == "json":
        return bool(json.loads(json.dumps(value)) == value)
    return isinstance(value, str if field.kind == "text" else bytes)


def everything(source: base.Source) -> dict[str, Any]:
    calls = {name: getattr(source, name) for name in ("key", "entry", "missing", "__getitem__")}
    return {f"{name} {index}": call(index) for name, call in calls.items() for index in range(len(source))}


class Shuffled:
    """os.scandir in another order."""

    def __init__(self, entries: Any, seed: int) -> None:
        with entries:
            self._entries = list(entries)
        random.Random(seed).shuffle(self._entries)

    def __enter__(self) -> Iterator[Any]:
        return iter(self._entries)

    def __exit__(self, *_: object) -> None:
        pass


@pytest.mark.one_in(3)
def test_the_order_does_not_depend_on_the_listing(
    name: str, root: Path, source: base.Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.scandir
    for seed in range(5):
        with monkeypatch.context() as patch:
            patch.setattr(os, "scandir", lambda path, seed=seed: Shuffled(real(path), seed))
            shuffled = sources.load(name).Source(root)
        assert [shuffled.key(i) for i in range(len(shuffled))] == [source.key(i) for i in range(len(source))]
        assert (shuffled.schema, shuffled.notes) == (source.schema, source.notes)


@pytest.mark.one_in(3)
def test_keys_are_unique_and_stand_in_the_samples(source: base.Source) -> None:
    keys = [source.key(index) for index in range(len(source))]
    assert len(source) > 2
    assert len(set(keys)) == len(keys)
    assert [source[index]["key"] for index in range(len(source))] == keys


@pytest.mark.one_in(3)
def test_an_index_outside_is_an_index_error(source: base.Source) -> None:
    for index in (len(source), -1, 10**12):
        for call in (source.__getitem__, source.key, source.entry, source.missing):
            with pytest.raises(BadIndex, match=str(index)):
                call(index)
    with pytest.raises(IndexError):
        source[len(source)]


@pytest.mark.one_in(3)
def test_a_sample_has_every_field_and_nothing_else(source: base.Source) -> None:
    for index in range(len(source)):
        assert set(source[index]) == set(source.schema.names)


@pytest.mark.one_in(7)
def test_values_fit_their_kinds(source: base.Source) -> None:
    for index in range(len(source)):
        for field in source.schema:
            value = source[index][field.name]
            assert fits(field, value), (field, value)


@pytest.mark.one_in(3)
def test_the_codec_of_every_field_holds_its_values(source: base.Source) -> None:
    for field in source.schema:
        made = codecs.load(field.codec.partition(":")[0]).Codec
        codec = made(made.complete(field))
        for index in range(len(source)):
            value = source[index][field.name]
            data = codec.encode(value)
            if isinstance(value, bytes):
                assert data == value
            else:
                read = codec.decode(data)
                numbers = isinstance(read, float | np.ndarray) and np.asarray(read).dtype.kind == "f"
                is_same = read == value if field.kind == "json" else np.array_equal(read, value, equal_nan=numbers)
                assert is_same  # lists in a json may have any lengths


@pytest.mark.one_in(3)
def test_a_pickled_source_is_the_same(source: base.Source) -> None:
    copy = pickle.loads(pickle.dumps(source))
    assert same(everything(copy), everything(source))
    assert (copy.schema, copy.notes, copy.left_out) == (source.schema, source.notes, source.left_out)


@pytest.mark.one_in(7)
def test_four_threads_read_what_one_reads(source: base.Source) -> None:
    indices = [index % len(source) for index in range(40)]
    for index, sample in zip(indices, ordered_map(source.__getitem__, indices, threads=4), strict=True):
        assert same(sample, source[index])


@pytest.mark.one_in(30)
def test_forked_children_read_what_the_parent_reads(source: base.Source) -> None:
    """Eight at once, after the parent has read: none moves the place where another reads."""
    expected = [repr(source[index]) for index in range(len(source))]

    def read() -> None:
        assert [repr(source[index]) for _ in range(5) for index in range(len(source))] == expected * 5

    children = [forked(read) for _ in range(8)]
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0] * 8


@pytest.mark.one_in(7)
def test_files_are_exactly_what_is_read(source: base.Source, monkeypatch: pytest.MonkeyPatch) -> None:
    read: dict[Path, bytes] = {}
    real, opened = SourceRoot.read, SourceRoot.open

    def noted(folder: SourceRoot, name: str, *, is_table: bool = False) -> bytes:
        return read.setdefault(folder.root / name, real(folder, name, is_table=is_table))

    def noted_open(folder: SourceRoot, name: str) -> int:
        read.setdefault(folder.root / name, b"")
        return opened(folder, name)

    monkeypatch.setattr(SourceRoot, "read", noted)
    monkeypatch.setattr(SourceRoot, "open", noted_open)
    for index in range(len(source)):
        read.clear()
        if source.holds_records:  # which keeps the file open that it read last
            source = pickle.loads(pickle.dumps(source))
        sample = source[index]
        assert sorted(read) == sorted(base.file_paths(source, index))
        contents = {path.read_bytes() for path in base.file_paths(source, index)} | {b""}
        values = [value for value in sample.values() if isinstance(value, bytes)]
        if source.holds_records:
            assert all(any(value in content for content in contents) for value in values)
        else:
            assert all(value in contents for value in values)


@pytest.mark.one_in(7)
def test_the_extent_of_a_record_holds_its_values(source: base.Source) -> None:
    for index in range(len(source)):
        extent = source.entry(index).extent
        assert (extent is not None) == source.holds_records
        if extent is not None:
            path = base.file_paths(source, index)[0]
            assert path == source.folder.root / extent.name
            data = path.read_bytes()[extent.offset : extent.offset + extent.size]
            assert len(data) == extent.size
            assert all(value in data for value in source[index].values() if isinstance(value, bytes))
            assert source.key(index) in base.sample_name(source, index)


@pytest.mark.one_in(7)
def test_the_stem_begins_the_main_file(source: base.Source) -> None:
    for index in range(len(source)):
        if not source.holds_records:
            assert source.entry(index).files[0].startswith(source.entry(index).stem)
        assert not (source.root / source.entry(index).stem).is_dir()


@pytest.mark.one_in(7)
def test_the_json_of_files_names_relative_paths_that_hold_the_field(source: base.Source) -> None:
    for index in range(len(source)):
        sample = source[index]
        for field, path in sample.get("files", {}).items():
            if source.holds_records:
                assert components(path)
            else:
                assert (source.root / path).read_bytes() == sample[field]


@pytest.mark.one_in(3)
def test_no_two_samples_have_one_path(source: base.Source) -> None:
    paths = [path for index in range(len(source)) for path in source[index].get("files", {}).values()]
    assert len(set(paths)) == len(paths)


@pytest.mark.one_in(3)
def test_a_file_that_vanished_is_named(name: str, root: Path) -> None:
    for path in base.file_paths(sources.load(name).Source(root), 0):
        source = sources.load(name).Source(root)
        data = path.read_bytes()
        path.unlink()
        with pytest.raises(BadInput) as caught:
            source[0]
        assert str(path) in str(caught.value)
        path.write_bytes(data)
    assert set(sources.load(name).Source(root)[0]) == set(source.schema.names)


@pytest.mark.one_in(3)
def test_a_fifo_in_place_of_a_file_is_an_error_and_does_not_block(source: base.Source) -> None:
    path = base.file_paths(source, 0)[0]
    path.unlink()
    os.mkfifo(path)
    # changed: the source still has the file open
    with pytest.raises(BadInput, match=f"{re.escape(str(path))}: .*(regular file|changed)"):
        source[0]


def test_options_are_keyword_only_and_have_plain_defaults(name: str) -> None:
    made = sources.load(name).Source
    parameters = inspect.signature(made).parameters
    assert list(parameters) == ["root", *made.defaults()]
    for option in made.defaults():
        default = parameters[option].default
        assert isinstance(default, str | int | bool | tuple)
        assert json.loads(json.dumps(default)) == (list(default) if isinstance(default, tuple) else default)


def test_options_are_those_that_the_table_declares(name: str) -> None:
    named = {option.parameter: [each for use in option.uses for each in use.sources] for option in OPTIONS.values()}
    declared = {parameter for parameter, names in named.items() if not names or name in names}
    assert {*sources.load(name).Source.defaults()} - {*INTERNAL} == declared


@pytest.mark.one_in(3)
def test_an_option_refuses_a_word_that_it_does_not_have(name: str, root: Path) -> None:
    made = sources.load(name).Source
    for option, parameter in inspect.signature(made).parameters.items():
        if isinstance(parameter.default, str):
            with pytest.raises(InvalidRequest, match=option):
                made(root, **{option: "no-such-choice"})


def test_a_source_is_detected_by_its_files(name: str, root: Path) -> None:
    found, sentence = detect(root)
    assert found == name == sources.load(name).Source.kind
    assert sentence and "\n" not in sentence


def test_a_source_recognizes_nothing_in_no_files(name: str) -> None:
    tree = SourceRoot(Path())
    assert sources.load(name).Source.recognize(tree, []) is None
    assert sources.load(name).Source.recognize(tree, ["README.md", "pcd.txt", "a/RGB.pdf"]) is None


def test_an_empty_folder_and_one_that_is_not_there_are_refused(name: str, tmp_path: Path) -> None:
    for place, said in ((tmp_path, "expected"), (tmp_path / "nowhere", "no such folder")):
        with pytest.raises(InvalidRequest, match=said):
            sources.load(name).Source(place)


def test_detect_names_what_was_found_and_what_was_expected(tmp_path: Path) -> None:
    write(tmp_path, {"a/b.pdf": b"", "c.PDF": b"", "d": b""})
    with pytest.raises(InvalidRequest, match=r"\.pdf 2, no suffix 1.*folder"):
        detect(tmp_path)


def test_helpers_are_no_sources() -> None:
    assert "scanning" not in sources.names()
    with pytest.raises(InvalidRequest, match="unknown source 'sidecars'"):
        sources.load("sidecars")


def test_read_file_refuses_a_file_with_more_bytes_than_its_size(tmp_path: Path) -> None:
    proc = Path("/proc/self/status")  # its size is 0 although it has content
    if proc.exists():
        with pytest.raises(BadInput, match="changed"):
            base.read_file(proc)
    path = tmp_path / "f"
    path.write_bytes(b"x" * (1 << 20))
    assert base.read_file(path) == b"x" * (1 << 20)


def test_an_error_while_reading_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int, count: int) -> bytes:
        raise OSError(5, "Input/output error")

    path = write(tmp_path, {"f": b"data"}) / "f"
    monkeypatch.setattr(os, "read", fail)
    with pytest.raises(BadInput, match="f: .*Input/output error"):
        base.read_file(path)
