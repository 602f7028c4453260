"""extract against somebody who swaps its folders for links all the while: nothing is written or removed elsewhere."""

import json
import os
import random
import shutil
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support import fault_injection
from tests.support.child_processes import forked
from tests.support.command_runs import load_everything
from tests.support.conversions import packed
from tests.support.source_trees import photos

# what lies in the victim has the names that packer gives to its own, so that whoever gets there by a path finds them
_TREE = (
    "tree/keep.txt",
    "pack/keep.txt",
    "pieces/keep.txt",
    "done/keep.txt",
    "c0/keep.txt",
    "c0/deep/keep.txt",
    "tree/c0/keep.txt",
)
_SWAPPED = (".out.extract", ".out.extract/tree", ".out.extract/tree/c0", ".out.extract/tree/c1", "out")


def victim(folder: Path) -> dict[str, bytes]:
    """A stranger's folder; returns its content."""
    for name in _TREE:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(f"a stranger's {name}".encode())
    (folder / "plan.json").write_bytes(b"a stranger's plan")
    return content(folder)


def content(folder: Path) -> dict[str, bytes]:
    """Every file and folder below."""
    paths = sorted(folder.rglob("*"))
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b"/" for path in paths}


def swap(place: Path, name: str, target: Path, chosen: random.Random) -> None:
    """Put a link in the place of a folder, for a moment or for good; through no link itself: that would do the harm."""
    *above, last = name.split("/")
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    root = os.open(place, flags)
    descriptor = os.dup(root)
    try:
        for folder in above:
            inner = os.open(folder, flags, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        os.rename(last, "aside", src_dir_fd=descriptor, dst_dir_fd=root)
        os.symlink(target, last, dir_fd=descriptor)
        if chosen.random() < 0.7:
            time.sleep(chosen.random() * 0.003)
        if chosen.random() < 0.8:
            os.unlink(last, dir_fd=descriptor)
            if chosen.random() < 0.6:
                os.rename("aside", last, src_dir_fd=root, dst_dir_fd=descriptor)
    finally:
        os.close(descriptor)
        os.close(root)


def attack(place: Path, target: Path, count: Path, seed: int) -> int:
    """A child that swaps folders of `place` for links to `target` until it is killed; counts its swaps in a file."""

    def work() -> None:
        chosen = random.Random(seed)
        counter = os.open(count, os.O_WRONLY | os.O_CREAT)
        done = 0
        while os.getppid() != 1:
            with suppress(OSError):  # it is not there just now
                swap(place, chosen.choice(_SWAPPED), target, chosen)
                done += 1
                os.pwrite(counter, b"%d" % done, 0)
            shutil.rmtree(place / "aside", ignore_errors=True)

    return forked(work)


def race(folder: Path, swaps: int) -> Counter[str]:
    """Extract again and again until there were so many swaps; counts how the runs ended."""
    load_everything()
    pack, place, stranger = folder / "pack", folder / "place", folder / "stranger"
    packed(photos(folder / "in", 40), pack)
    place.mkdir()
    before = victim(stranger)
    count = folder / "count"
    count.write_text("0")
    attacker = attack(place, stranger, count, 7)
    found: Counter[str] = Counter()
    try:
        while int(count.read_text() or 0) < swaps:
            ended = fault_injection.run(["extract", pack, place / "out"], folder, prepare=lambda: None)
            assert "Traceback" not in ended.text, ended
            assert ended.code in (0, 2, 3, 4, 5), ended
            assert content(stranger) == before, (ended, set(content(stranger).items()) ^ set(before.items()))
            found[f"exit {ended.code}"] += 1
            for name in os.listdir(place):
                path = place / name
                with suppress(OSError):
                    if path.is_symlink():
                        path.unlink()
                    elif name != "aside":
                        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.kill(attacker, signal.SIGKILL)
        os.waitpid(attacker, 0)
    assert content(stranger) == before
    return found


def test_extract_while_folders_are_swapped_for_links(tmp_path: Path) -> None:
    assert race(tmp_path, 20).total() >= 1


@pytest.mark.full
def test_extract_while_folders_are_swapped_for_links_six_thousand_times(tmp_path: Path) -> None:
    found = race(tmp_path, 6_000)
    print(f"\n{json.dumps(found)}")  # noqa: T201  the figure
    assert found.total() >= 100
