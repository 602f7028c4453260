"""Two real users on one staging base: neither can read, change or remove the other's copy."""

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from packer.cli import registry
from packer.copies.leased_folder import OwnedFolder
from packer.copies.staged_copies import StagedCopy, open_staged
from packer.pack import manifest as manifests
from tests.support import built_packs, fault_injection
from tests.support.child_processes import Outcome, child
from tests.support.command_runs import load_everything
from tests.support.conversions import digest
from tests.support.other_users import enter_the_clone

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become two other users"),
    enter_the_clone,
]
_ANN, _BEN = 61_001, 61_002


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that every user may enter, with a pack, and a base like /dev/shm in it."""
    folder = Path(tempfile.mkdtemp(prefix="packer-users-"))
    try:
        folder.chmod(0o755)
        built_packs.make_pack(folder / "pack", 10, parts=2)
        (folder / "base").mkdir()
        (folder / "base").chmod(0o1777)
        yield folder
    finally:
        shutil.rmtree(folder)


def as_user(user: int, function: Callable[[], Any]) -> Outcome:
    """Call `function` in a child of that user."""
    load_everything()
    registry.load("stage")

    def work() -> Any:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        os.chdir("/")
        return function()

    return child(work)


def stage(shared: Path, user: int, *more: str) -> tuple[int | None, str]:
    def work() -> list[Any]:
        ended = fault_injection.run(
            ["stage", shared / "pack", "--to", shared / "base", "--leave-free", "0", *more], shared
        )
        return [ended.code, ended.text]

    outcome = as_user(user, work)
    assert outcome.kind == "value", outcome
    return outcome.value[0], outcome.value[1]


def values(shared: Path, user: int) -> Outcome:
    def work() -> list[str]:
        opened = open_staged(shared / "pack", stage=str(shared / "base"))
        found = []
        for index in range(len(opened)):
            with opened.record(index, opened.schema.names) as record:
                found += [bytes(record[name]).hex() for name in opened.schema.names]
        opened.close()
        return found

    return as_user(user, work)


def test_each_has_a_copy_that_the_other_cannot_touch(shared: Path) -> None:
    for user in (_ANN, _BEN):
        code, said = stage(shared, user)
        assert code == 0, said
    name = StagedCopy.of(OwnedFolder(shared / "base"), manifests.read(shared / "pack")).folder.name
    for user in (_ANN, _BEN):
        own = shared / "base" / f"packer-{user}"
        assert (own.stat().st_uid, stat.S_IMODE(own.stat().st_mode)) == (user, 0o700)
        assert digest(own / name) == digest(shared / "pack")
    assert values(shared, _ANN) == values(shared, _BEN)
    anns = shared / "base" / f"packer-{_ANN}"

    def pry() -> list[str]:
        found = []
        attempts: list[Callable[[], object]] = [
            lambda: os.listdir(anns),
            lambda: os.open(anns / name / manifests.NAME, os.O_RDONLY),
            lambda: os.rename(anns, shared / "base/mine"),
            lambda: os.rmdir(anns),
            lambda: shutil.rmtree(anns),
            lambda: os.chmod(anns, 0o777),
        ]
        for attempt in attempts:
            try:
                attempt()
            except PermissionError as error:
                found.append(error.__class__.__name__)
        return found

    assert as_user(_BEN, pry).value == ["PermissionError"] * 6
    code, said = stage(shared, _BEN, "--release")
    assert code == 0, said
    assert sorted(os.listdir(shared / "base")) == [f"packer-{_ANN}"]
    assert digest(anns / name) == digest(shared / "pack")
    listed = stage(shared, _BEN, "--list")[1]
    assert str(anns) not in listed


@pytest.mark.one_in(3)
@pytest.mark.parametrize("how", ["folder", "open folder", "link"])
def test_what_another_user_put_in_the_place_is_refused_and_stays(shared: Path, how: str) -> None:
    anns = shared / "base" / f"packer-{_ANN}"

    def plant() -> None:
        os.umask(0)
        mine = shared / "base/mine"
        mine.mkdir(mode=0o777)
        (mine / "keep.txt").write_text("of Ben")
        if how == "link":
            anns.symlink_to(mine)
        else:
            anns.mkdir(mode=0o777 if how == "open folder" else 0o755)
            (anns / "keep.txt").write_text("of Ben")

    assert as_user(_BEN, plant).kind == "value"
    code, said = stage(shared, _ANN)
    assert code == 2, said
    assert str(anns) in said
    assert "Traceback" not in said
    found = values(shared, _ANN)
    assert (found.kind, found.error) == ("error", "UnsafePath"), found
    assert (anns / "keep.txt").read_text() == "of Ben"
    assert sorted(os.listdir(anns)) == ["keep.txt"]
