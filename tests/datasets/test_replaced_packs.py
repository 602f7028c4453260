"""Packs that `convert --overwrite` replaces while they are opened or read: the old one or the new one, never a mix."""

import gc
import io
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import packer
from packer import formats
from packer.datasets.pack_dataset import PackDataset
from packer.errors import CorruptPack
from packer.files.folder_handle import FolderHandle
from packer.pack import part_readers
from tests.support.built_packs import make_pack, record, values

_NAMES = formats.names()


class Replacing:
    """Puts the pack `new` in the place of `old`, and removes the old one, right after one of the calls that look."""

    def __init__(self, folder: Path, call: int) -> None:
        self.folder = folder
        self.left = call  # calls until then
        self._is_busy = False

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            try:
                return function(*given, **named)
            finally:
                if not self._is_busy and self.left > 0:
                    self.left -= 1
                    if not self.left:
                        self.replace()

        return call

    def replace(self) -> None:
        self._is_busy = True
        with FolderHandle.at(self.folder) as above:
            above.swap("new", above, "old")
            above.remove("new")


@contextmanager
def replaced_after(folder: Path, call: int) -> Iterator[Replacing]:
    replacing = Replacing(folder, call)
    with pytest.MonkeyPatch.context() as patch:
        for module, name in ((os, "open"), (os, "stat"), (os, "lstat"), (io, "open")):
            patch.setattr(module, name, replacing.counted(getattr(module, name)))
        yield replacing


@pytest.fixture(params=_NAMES)
def packs(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Folders `old`, and `new` of another format and size."""
    old, new = request.param, _NAMES[(_NAMES.index(request.param) + 1) % len(_NAMES)]
    (tmp_path / "packs").mkdir()
    make_pack(tmp_path / "packs/old", 6, format=old)
    make_pack(tmp_path / "packs/new", [record(number, blob=b"new") for number in range(9)], format=new)
    return tmp_path / "packs"


def trials(packs: Path) -> Iterator[tuple[int, Path]]:
    """A copy of the two for each call that there may be."""
    for call in count(1):
        folder = packs.parent / f"trial-{call}"
        shutil.copytree(packs, folder)
        yield call, folder
        shutil.rmtree(folder)


def records_of(dataset: PackDataset) -> list[dict[str, bytes]]:
    pack, found = dataset.sample_decoder().pack, []
    for index in range(len(pack)):
        with pack.record(index, pack.schema.names) as each:
            found.append({name: bytes(value) for name, value in each.items()})
    return found


@pytest.mark.one_in(11)
def test_a_pack_that_is_replaced_while_it_is_opened_is_the_old_or_the_new_one(packs: Path) -> None:
    new, opened = values(packs / "new"), set()
    for call, folder in trials(packs):
        with replaced_after(folder, call) as replacing:
            dataset = packer.open(folder / "old")
        with dataset:
            opened.add((len(dataset), bool(replacing.left)))
            if replacing.left:  # there were fewer calls
                break
            assert dataset.format in (None, dataset.sample_decoder().pack.manifest.format)
            if len(dataset) == len(new):
                assert records_of(dataset) == new
            else:
                with pytest.raises(CorruptPack, match="replaced"):
                    records_of(dataset)
    assert opened >= {(9, False), (6, True)}


@pytest.mark.one_in(11)
def test_a_pack_that_is_replaced_while_it_is_read_gives_its_own_samples_or_none(packs: Path) -> None:
    old = values(packs / "old")
    for call, folder in trials(packs):
        with packer.open(folder / "old") as dataset:
            with replaced_after(folder, call) as replacing:
                try:
                    assert records_of(dataset) == old
                except CorruptPack as error:
                    assert "replaced" in str(error)
            if replacing.left:
                break


def test_a_pack_that_is_replaced_again_and_again_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()  # packs of earlier tests that an exception held
    make_pack(tmp_path / "old")
    changes = count()
    monkeypatch.setattr(part_readers, "_identity", lambda _: next(changes))
    with pytest.raises(CorruptPack, match="times"):
        packer.open(tmp_path / "old")
    assert next(changes) < 1000
    assert not part_readers.open_readers.owners()
