"""Every source of records or arrays in large files: pointers of git-lfs, cut files, changed bytes, links, pickles."""

import os
import random
from pathlib import Path

import pytest

import packer
from packer import sources
from packer.conversion.options import ConversionOptions
from packer.conversion.plan import make_plan
from packer.conversion.source_spec import SourceSpec
from packer.errors import BadInput, PackerError
from packer.sources import base
from packer.sources._recognition import detect
from packer.system.parallel import ordered_map
from tests.support.audit_events import watched
from tests.support.source_trees import BUILDERS, pasted_features, write

NAMES = [name for name in sources.names() if sources.load(name).Source.holds_records]


@pytest.fixture(params=NAMES)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> base.Source:
    made = sources.load(request.param).Source(BUILDERS[request.param](tmp_path / "in"))
    assert isinstance(made, base.Source)
    return made


def test_a_pointer_of_git_lfs_is_named(source: base.Source) -> None:
    path = base.file_paths(source, 0)[0]
    write(path.parent, {path.name: "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n"})
    if source.kind == "n5":  # its files have no magic: a pointer is a damaged block
        with pytest.raises(BadInput, match="is damaged"):
            source.__class__(source.root)[0]
        return
    for place in (path.parent, path):
        with pytest.raises(BadInput, match=f"{path.name}: .*git lfs pull"):
            source.__class__(place)
        with pytest.raises(BadInput, match="git lfs pull"):
            SourceSpec().open(place)


def test_a_file_that_is_cut_loses_no_sample_silently(source: base.Source) -> None:
    path = base.file_paths(source, 0)[0]
    data = path.read_bytes()
    of_file = sum(path in base.file_paths(source, row) for row in range(len(source)))
    whole = [source[row] for row in range(len(source))]
    for size in sorted({0, 1, 11, *range(100, len(data), max(512, len(data) // 20)), len(data) - 1}):
        path.write_bytes(data[:size])
        try:
            cut = source.__class__(
                source.root, **({"named_splits": True} if "named_splits" in source.defaults() else {})
            )
            found = [cut[row] for row in range(len(cut))]
        except PackerError as error:
            assert str(error).isprintable()
        else:
            is_told = cut.left_out or cut.unread or len(found) == len(whole) or source.kind == "tfrecord"
            assert is_told or len(whole) - len(found) == of_file, size


@pytest.mark.one_in(3)
def test_changed_bytes_end_in_samples_or_errors(source: base.Source) -> None:
    drawn = random.Random(5)
    paths = sorted(
        {path for row in range(len(source)) for path in base.file_paths(source, row)}
        | {source.folder.root / name for name in source.tables}
    )
    with watched() as events:
        for _ in range(150):
            path = drawn.choice(paths)
            kept = path.read_bytes()
            data = bytearray(kept)
            for _ in range(drawn.randrange(1, 5)):
                at = drawn.choice((drawn.randrange(len(data)), drawn.randrange(min(len(data), 600))))
                data[at : at + drawn.choice((0, 1, 4))] = drawn.choice((b"\0", b"\xff", b"9", b"|O", b"\xff" * 4))
            path.write_bytes(data[: drawn.choice((len(data), len(data), drawn.randrange(1, len(data))))])
            try:
                changed = source.__class__(source.root)
                for row in range(min(len(changed), 3)):
                    assert set(changed[row]) >= set(changed.schema.names)
            except PackerError as error:
                assert str(error).isprintable()
            path.write_bytes(kept)
    assert events == []


def test_a_file_that_changed_is_not_read_on(source: base.Source) -> None:
    path = base.file_paths(source, 0)[0]
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(BadInput, match="changed"):
        source[0]


def test_no_file_stays_open(source: base.Source) -> None:
    before = set(Path("/proc/self/fd").iterdir())
    again = source.__class__(source.root)
    assert len(list(ordered_map(again.__getitem__, range(len(again)), threads=3))) == len(again)
    del again
    assert len(list(Path("/proc/self/fd").iterdir())) <= len(before)


def test_the_guess_of_the_fields_is_what_to_type(source: base.Source) -> None:
    lines = [note for note in source.notes if note.startswith("--feature")]
    assert bool(lines) == ("features" in source.defaults())
    for line in lines:
        assert source.__class__(source.root, features=pasted_features(line)).schema == source.schema


def test_a_pack_is_equal_to_its_files(source: base.Source, tmp_path: Path) -> None:
    packer.convert(source.root, tmp_path / "a.pack", kind=source.kind)
    assert packer.verify(tmp_path / "a.pack", source=source.root).problems == ()


def test_a_file_that_was_written_again_is_another_plan_of_the_same_data(source: base.Source) -> None:
    before = make_plan(source, ConversionOptions())
    for number, path in enumerate(base.file_paths(source, 0)):
        os.utime(path, ns=(1, 1 + number))
        again = make_plan(source.__class__(source.root), ConversionOptions())
        assert (again.fingerprint != before.fingerprint, again.digest) == (True, before.digest)
        before = again


def test_a_link_that_the_user_names_means_its_target(source: base.Source, tmp_path: Path) -> None:
    if source.kind == "n5":
        pytest.skip("a container is a folder")
    path = base.file_paths(source, 0)[0]
    link = tmp_path / "elsewhere" / path.name
    link.parent.mkdir()
    link.symlink_to(path)
    assert detect(path)[0] == detect(link)[0] == source.kind
    alone = source.__class__(path)
    linked = source.__class__(link)
    assert [linked.key(row) for row in range(len(linked))] == [alone.key(row) for row in range(len(alone))]
