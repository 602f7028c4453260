"""Trees of LMDB that the bare library wrote, read without it; and pages that lead nowhere, in circles or elsewhere."""

import mmap
import os
import random
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.errors import CorruptPack, InvalidRequest
from packer.formats.lmdb import BTree
from tests.support.child_processes import child

PAGE = 4096
META = 40  # of the databases in a meta page


def name(number: int) -> bytes:
    return number.to_bytes(8, "big")


@contextmanager
def environment(path: Path) -> Iterator[lmdb.Environment]:
    with lmdb.open(str(path), subdir=False, lock=False, map_size=1 << 27, sync=False) as env:
        yield env


@contextmanager
def opened(path: Path) -> Iterator[BTree]:
    """The tree of a file, closed and unmapped at the end."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        tree = BTree(path, mapped)
        try:
            yield tree
        finally:
            tree.close()


def found(tree: BTree, number: int) -> bytes | None:
    value = tree.value(number)
    return None if value is None else bytes(value)


# ---- what the library wrote

SIZES = st.one_of(st.integers(0, 40), st.sampled_from([1000, 2030, 2031, 2032, 2040, 2041, 4080, 4081, 9000]))


@given(
    sizes=st.lists(SIZES, max_size=300),
    order=st.randoms(use_true_random=False),
    commit=st.integers(1, 100),
    deleted=st.sets(st.integers(0, 299)),
)
def test_any_tree_gives_what_the_library_gives(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], order: random.Random, commit: int, deleted: set[int]
) -> None:
    path = tmp_path_factory.mktemp("tree") / "a.lmdb"
    values = {number: order.randbytes(size) for number, size in enumerate(sizes)}
    numbers = list(values)
    order.shuffle(numbers)  # pages split in the middle, and are merged and used again
    with environment(path) as env:
        for start in range(0, len(numbers), commit):
            with env.begin(write=True) as write:
                for number in numbers[start : start + commit]:
                    write.put(name(number), values[number])
        with env.begin(write=True) as write:
            write.put(b"packer", b"end")
            for number in deleted & values.keys():
                write.delete(name(number))
    left = {number: value for number, value in values.items() if number not in deleted}
    with opened(path) as tree:
        assert tree.count == len(left) + 1
        assert {number: found(tree, number) for number in range(310)} == {n: left.get(n) for n in range(310)}
        assert tree.value_of(b"packer") == b"end"
        assert tree.value_of(b"q") is tree.value_of(b"") is tree.value_of(b"\xff" * 511) is None


@pytest.mark.one_in(2)
@pytest.mark.parametrize("append", [True, False])
def test_a_tree_of_three_levels(tmp_path: Path, append: bool) -> None:
    numbers = list(range(60_000))
    if not append:
        random.Random(1).shuffle(numbers)
    with environment(tmp_path / "a.lmdb") as env:
        with env.begin(write=True) as write:
            for number in numbers:
                write.put(name(number), b"%d" % number * 40, append=append)
        assert env.stat()["depth"] >= 3
        assert env.stat()["branch_pages"] > 10
    with opened(tmp_path / "a.lmdb") as tree:
        assert all(found(tree, number) == b"%d" % number * 40 for number in range(60_000))
        assert found(tree, 60_000) is None
        assert found(tree, (1 << 64) - 1) is None


def test_an_empty_tree_and_keys_of_other_lengths(tmp_path: Path) -> None:
    with environment(tmp_path / "empty.lmdb"):
        pass
    with opened(tmp_path / "empty.lmdb") as tree:
        assert (tree.count, found(tree, 0), tree.value_of(b"packer")) == (0, None, None)
    strange = {b"": b"never"} | {bytes(length): b"zeros" for length in (1, 7, 9, 16)}
    del strange[b""]  # LMDB has no empty key
    with environment(tmp_path / "a.lmdb") as env, env.begin(write=True) as write:
        for key, value in strange.items():
            write.put(key, value)
        for number in range(1, 500):
            write.put(name(number), b"%d" % number)
    with opened(tmp_path / "a.lmdb") as tree:
        assert [found(tree, number) for number in range(501)] == [None, *(b"%d" % n for n in range(1, 500)), None]
        assert all(tree.value_of(key) == value for key, value in strange.items())


def test_slices_outlive_the_tree_which_is_refused_then(tmp_path: Path) -> None:
    with environment(tmp_path / "a.lmdb") as env, env.begin(write=True) as write:
        write.put(name(0), b"value")
    with (tmp_path / "a.lmdb").open("rb") as file:
        tree = BTree(tmp_path / "a.lmdb", mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    value = tree.value(0)
    tree.close()
    tree.close()
    assert value is not None
    assert bytes(value) == b"value"
    with pytest.raises(InvalidRequest, match="closed"):
        tree.value(0)


# ---- pages that lead nowhere


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file of two levels, with small values and large ones."""
    path = tmp_path_factory.mktemp("large") / "a.lmdb"
    with environment(path) as env:
        with env.begin(write=True) as write:
            for number in range(400):
                write.put(name(number), bytes([number % 251]) * (5000 if number % 10 == 0 else 60), append=True)
        assert env.stat()["depth"] == 2
    return path.read_bytes()


class Forgery:
    """The bytes of a file, and where things are in it."""

    def __init__(self, data: bytes) -> None:
        self.data = bytearray(data)
        transactions = [struct.unpack_from("<Q", data, page * PAGE + 144)[0] for page in (0, 1)]
        self.meta = PAGE * transactions.index(max(transactions))
        self.root = self.get("<Q", self.meta + 88 + 40)

    def get(self, kind: str, at: int) -> int:
        value: int = struct.unpack_from(kind, self.data, at)[0]
        return value

    def set(self, kind: str, at: int, value: int) -> None:
        struct.pack_into(kind, self.data, at, value)

    def node(self, page: int, at: int) -> int:
        return page * PAGE + self.get("<H", page * PAGE + 16 + 2 * at)

    def below(self, at: int) -> int:
        """The page below a node of the root."""
        return self.get("<H", self.node(self.root, at)) | self.get("<H", self.node(self.root, at) + 2) << 16

    def lead(self, at: int, page: int) -> None:
        """Let a node of the root lead to a page."""
        for place, shift in ((0, 0), (2, 16), (4, 32)):
            self.set("<H", self.node(self.root, at) + place, page >> shift & 0xFFFF)


def deeper(forgery: Forgery, depth: int) -> None:
    forgery.set("<H", forgery.meta + 88 + 6, depth)


def circle(forgery: Forgery) -> None:
    """The root lies below itself, again and again."""
    forgery.lead(0, forgery.root)
    deeper(forgery, 32)


def chain(forgery: Forgery) -> None:
    """The root is the only page below itself."""
    circle(forgery)
    forgery.set("<H", forgery.root * PAGE + 12, 18)


def swap(forgery: Forgery) -> None:
    """Two leaves change places."""
    first, second = forgery.below(1), forgery.below(2)
    forgery.lead(1, second)
    forgery.lead(2, first)


def lower(forgery: Forgery) -> None:
    """The keys of the root do not rise."""
    forgery.set(">Q", forgery.node(forgery.root, 2) + 8, 1)


OPENING: dict[str, Callable[[Forgery], None]] = {
    "magic": lambda forgery: forgery.set("<I", forgery.meta + 16, 0xBEEFC0DF),
    "data format 2": lambda forgery: forgery.set("<I", forgery.meta + 20, 2),
    "pages of 0 bytes": lambda forgery: forgery.set("<I", META, 0),
    "pages of 4097 bytes": lambda forgery: forgery.set("<I", META, 4097),
    "pages of 4 GiB": lambda forgery: forgery.set("<I", META, 0xFFFFFFFF),
    "a database of duplicates": lambda forgery: forgery.set("<H", forgery.meta + 88 + 4, 4),
    "depth 33": lambda forgery: deeper(forgery, 33),
    "depth 3": lambda forgery: deeper(forgery, 3),
    "root outside the file": lambda forgery: forgery.set("<Q", forgery.meta + 88 + 40, 1 << 40),
    "root at the last but one": lambda forgery: forgery.set("<Q", forgery.meta + 88 + 40, (1 << 64) - 2),
    "root is a leaf": lambda forgery: forgery.set("<Q", forgery.meta + 88 + 40, forgery.below(0)),
    "circle": circle,
    "chain": chain,
    "a leaf that is the root": lambda forgery: forgery.lead(0, forgery.root),
    "a node outside its page": lambda forgery: forgery.set("<H", forgery.root * PAGE + 18, PAGE - 4),
    "a node in the page's header": lambda forgery: forgery.set("<H", forgery.root * PAGE + 18, 8),
    "a key longer than the page": lambda forgery: forgery.set("<H", forgery.node(forgery.root, 1) + 6, 0xFFFF),
    "too many nodes": lambda forgery: forgery.set("<H", forgery.root * PAGE + 12, 0xFFFF),
    "fewer nodes than none": lambda forgery: forgery.set("<H", forgery.root * PAGE + 12, 2),
}
READING: dict[str, Callable[[Forgery], None]] = {
    "a leaf outside the file": lambda forgery: forgery.lead(0, 1 << 47),
    "a leaf of another number": lambda forgery: forgery.set("<Q", forgery.below(0) * PAGE, 77),
    "a value longer than its page": lambda forgery: forgery.set("<H", forgery.node(forgery.below(0), 1), 0xFFFF),
    "a value of 4 GiB in pages": lambda forgery: forgery.set("<I", forgery.node(forgery.below(0), 0), 0xFFFFFFFF),
    "overflow pages outside": lambda forgery: forgery.set("<Q", forgery.node(forgery.below(0), 0) + 16, 1 << 50),
    "overflow pages far outside": lambda forgery: forgery.set("<Q", forgery.node(forgery.below(0), 0) + 16, 1 << 63),
    "overflow pages that are a leaf": lambda forgery: forgery.set(
        "<Q", forgery.node(forgery.below(0), 0) + 16, forgery.below(0)
    ),
    "a value of duplicates": lambda forgery: forgery.set("<H", forgery.node(forgery.below(0), 0) + 4, 4),
    "a node outside its page": lambda forgery: forgery.set("<H", forgery.below(0) * PAGE + 16, 0xFFFF),
}


def forged(path: Path, data: bytes, change: Callable[[Forgery], None]) -> Path:
    forgery = Forgery(data)
    change(forgery)
    path.write_bytes(forgery.data)
    return path


def test_what_is_forged_is_sound_before(tmp_path: Path, large: bytes) -> None:
    path = forged(tmp_path / "a.lmdb", large, lambda forgery: None)
    with opened(path) as tree:
        assert [len(found(tree, number) or b"") for number in range(400)] == [
            5000 if number % 10 == 0 else 60 for number in range(400)
        ]


@pytest.mark.one_in(7)
@pytest.mark.parametrize("what", OPENING)
def test_a_tree_that_leads_nowhere_is_refused(tmp_path: Path, large: bytes, what: str) -> None:
    path = forged(tmp_path / "a.lmdb", large, OPENING[what])

    def read() -> int:
        with opened(path) as tree:
            return len(found(tree, 0) or b"")

    outcome = child(read, timeout_seconds=20)
    assert (outcome.kind, outcome.error) == ("error", "CorruptPack"), outcome
    assert "damaged LMDB file" in outcome.message


@pytest.mark.one_in(6)
@pytest.mark.parametrize("what", READING)
def test_a_page_that_leads_elsewhere_is_refused_when_it_is_read(tmp_path: Path, large: bytes, what: str) -> None:
    path = forged(tmp_path / "a.lmdb", large, READING[what])

    def read() -> list[str]:
        ends = []
        with opened(path) as tree:
            for number in (0, 1, 399):
                try:
                    ends.append("read" if found(tree, number) is not None else "none")
                except CorruptPack as error:
                    assert "damaged LMDB file" in str(error)
                    ends.append("refused")
        return ends

    outcome = child(read, timeout_seconds=20)
    assert outcome.kind == "value", outcome
    assert "refused" in outcome.value[:2], outcome
    assert outcome.value[2] == "read"


@pytest.mark.parametrize("change", [swap, lower], ids=["leaves in each other's place", "keys out of order"])
def test_what_leads_to_another_leaf_hides_values_and_swaps_none(
    tmp_path: Path, large: bytes, change: Callable[[Forgery], None]
) -> None:
    with opened(forged(tmp_path / "a.lmdb", large, change)) as tree:
        values = {number: found(tree, number) for number in range(400)}
    assert None in values.values()
    assert all(value is None or value[0] == number % 251 for number, value in values.items())


@pytest.mark.parametrize("size", [0, 15, 100, 151, 152, PAGE, PAGE + 151, 2 * PAGE])
def test_a_file_that_ends_in_its_meta_pages_is_refused(tmp_path: Path, large: bytes, size: int) -> None:
    path = tmp_path / "a.lmdb"
    path.write_bytes(large[: max(size, 1)])
    with pytest.raises(CorruptPack, match="damaged LMDB file"), opened(path) as tree:
        found(tree, 0)
    assert not [link for link in os.listdir("/proc/self/fd") if _target(link) == str(path)]


def _target(link: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{link}")
    except OSError:
        return ""
