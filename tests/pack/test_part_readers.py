"""The table of open readers: shared, counted, limited, and never carried over a fork."""

import gc
import os
import random
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from packer.errors import CorruptPack
from packer.formats import base
from packer.formats.base import Reader
from packer.pack import part_readers
from packer.pack.part_readers import Key, ReaderCache
from packer.pack.reader import Pack
from tests.support import built_packs
from tests.support.child_processes import child


class Fake(Reader):
    """A reader that knows whether it is open; one part may be open once."""

    open_keys: set[Key] = set()

    def __init__(self, key: Key) -> None:
        super().__init__(Path("part"), built_packs.SCHEMA, samples=0)
        assert key not in self.open_keys, "opened twice"
        self.key = key
        self.closed = False
        self.open_keys.add(key)

    def read(self, row: int, names: Sequence[str]) -> base.Record:
        assert not self.closed, "read after close"
        return {}

    def close(self) -> None:
        self.closed = True
        self.open_keys.discard(self.key)


def maker(key: Key) -> Callable[[], Fake]:
    return lambda: Fake(key)


@pytest.fixture(autouse=True)
def nothing_open() -> None:
    Fake.open_keys.clear()


KEYS = [(1, number) for number in range(6)]


def test_over_the_limit_the_one_unused_for_longest_is_closed() -> None:
    table = ReaderCache(2)
    table.own(KEYS)
    for number in (0, 1, 0, 2):
        with table.pinned(KEYS[number], maker(KEYS[number])):
            pass
    assert Fake.open_keys == {KEYS[0], KEYS[2]}


def test_what_many_reads_at_once_opened_is_closed_as_they_end() -> None:
    table = ReaderCache(2)
    table.own(KEYS)
    with ExitStack() as reads:
        for key in KEYS:
            reads.enter_context(table.pinned(key, maker(key)))
        assert len(table) == len(KEYS) > 2
    assert len(table) == 2


def test_a_part_that_cannot_be_opened_leaves_nothing() -> None:
    table = ReaderCache(4)

    def fail() -> Reader:
        raise CorruptPack("damaged")

    with pytest.raises(CorruptPack), table.pinned(KEYS[0], fail):
        pass
    assert len(table) == 0
    with table.pinned(KEYS[0], maker(KEYS[0])) as reader:
        reader.read(0, ())


class Machine(RuleBasedStateMachine):
    """Any order of owning, reading and letting go."""

    def __init__(self) -> None:
        super().__init__()
        Fake.open_keys.clear()
        self.table = ReaderCache(2)
        self.owned: list[list[Key]] = []
        self.reads: list[object] = []

    @rule(keys=st.lists(st.sampled_from(KEYS), max_size=4))
    def own(self, keys: list[Key]) -> None:
        self.table.own(keys)
        self.owned.append(keys)

    @precondition(lambda self: self.owned)
    @rule(data=st.data())
    def disown(self, data: st.DataObject) -> None:
        self.table.disown(self.owned.pop(data.draw(st.integers(0, len(self.owned) - 1))))

    @rule(key=st.sampled_from(KEYS))
    def begin(self, key: Key) -> None:
        read = self.table.pinned(key, maker(key))
        self.reads.append((read, read.__enter__()))

    @precondition(lambda self: self.reads)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        read, reader = self.reads.pop(data.draw(st.integers(0, len(self.reads) - 1)))  # type: ignore[misc]
        reader.read(0, ())
        read.__exit__(None, None, None)

    @invariant()
    def only_what_is_wanted_is_open(self) -> None:
        """Open is what is read now, and some of what is owned."""
        pinned = {reader.key for _, reader in self.reads}  # type: ignore[misc]
        owned = {key for keys in self.owned for key in keys}
        assert pinned <= Fake.open_keys <= pinned | owned
        assert len(Fake.open_keys) <= max(2, len(pinned) + 1)

    def teardown(self) -> None:
        for read, _ in self.reads:  # type: ignore[misc]
            read.__exit__(None, None, None)
        for keys in self.owned:
            self.table.disown(keys)
        assert Fake.open_keys == set()


TestAnyOrder = Machine.TestCase
TestAnyOrder.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


# ---- finalizers, threads


def test_a_pack_collected_while_the_table_is_locked_does_not_block() -> None:
    """The collector may run a finalizer in the very thread that holds the lock."""
    table = ReaderCache(4)
    table.own([KEYS[0]])
    table.own([KEYS[1]])
    with table.pinned(KEYS[0], maker(KEYS[0])):
        pass

    def collect() -> Reader:
        table.disown([KEYS[0]])
        return Fake(KEYS[1])

    done = threading.Event()

    def work() -> None:
        with table.pinned(KEYS[1], collect):
            done.set()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(20)
    assert done.is_set(), "a finalizer waits for a lock that its own thread holds"
    assert Fake.open_keys == {KEYS[1]}
    table.disown([KEYS[1]])
    assert Fake.open_keys == set()


def test_packs_in_reference_cycles_are_closed_by_the_collector(tmp_path: Path) -> None:
    built_packs.make_pack(tmp_path / "pack", 4)
    before = len(part_readers.open_readers)
    for _ in range(3):
        pack = Pack(tmp_path / "pack")
        with pack.record(0, ("key",)):
            pass
        cycle = [pack]
        cycle.append(cycle)  # type: ignore[arg-type]
        del pack, cycle
    gc.collect()
    assert len(part_readers.open_readers) == before


def test_threads_read_right_data_while_parts_are_evicted_and_packs_come_and_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built_packs.make_pack(tmp_path / "pack", 24, parts=12)
    expected = built_packs.values(tmp_path / "pack")
    monkeypatch.setattr(part_readers.open_readers, "limit", 2)
    wrong: list[object] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        try:
            for _ in range(15):
                pack = Pack(tmp_path / "pack")
                for index in (rng.randrange(24) for _ in range(20)):
                    with pack.record(index, pack.schema.names) as record:
                        if {name: bytes(value) for name, value in record.items()} != expected[index]:
                            wrong.append(index)
        except BaseException as error:
            wrong.append(error)
            raise

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    gc.collect()
    assert len(part_readers.open_readers) == 0


# ---- forks and limits


def test_the_inherited_pack_may_go_in_the_child(tmp_path: Path) -> None:
    built_packs.make_pack(tmp_path / "pack", 4)
    held = [Pack(tmp_path / "pack")]
    with held[0].record(0, ("key",)):
        pass

    def drop_and_read() -> int:
        mine = Pack(tmp_path / "pack")
        with mine.record(0, ("key",)):
            held.clear()
            gc.collect()
            assert len(part_readers.open_readers) == 1
        return len(part_readers.open_readers)

    outcome = child(drop_and_read)
    assert outcome.value == 1, outcome
    held[0].close()


def test_a_fork_amid_opening_and_closing_threads_leaves_every_part_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built_packs.make_pack(tmp_path / "pack", 8, parts=8)
    expected = built_packs.values(tmp_path / "pack")
    monkeypatch.setattr(part_readers.open_readers, "limit", 1)  # nearly every read opens one part and closes another
    end, failures = threading.Event(), []

    def churn(seed: int) -> None:
        rng, pack = random.Random(seed), Pack(tmp_path / "pack")
        while not end.is_set():
            with pack.record(rng.randrange(8), ("key",)):
                pass
        pack.close()

    threads = [threading.Thread(target=churn, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        outcome = child(lambda: built_packs.values(tmp_path / "pack") == expected, timeout_seconds=30)
        if outcome.value is not True:
            failures.append(outcome)
    end.set()
    for thread in threads:
        thread.join()
    assert failures == []


LEASED_READER_AT_A_FORK = """
import os, signal, time
from packer.pack.part_readers import open_readers  # first, as in a process that imports nothing else before it
from packer.system.closed_after_fork import closed_after_fork

class Leased:
    path, is_given_up = None, False

    def close(self):
        closed_after_fork.close(descriptor)

descriptor = closed_after_fork.opened(lambda: os.open(os.devnull, os.O_RDONLY))
open_readers.own([(0, 0)])
open_readers.unpin((0, 0), open_readers.pin_with_lease((0, 0), Leased, Leased()))
child = os.fork()
if child == 0:
    os._exit(len(open_readers) + len(closed_after_fork))
for _ in range(400):
    ended, status = os.waitpid(child, os.WNOHANG)
    if ended:
        raise SystemExit(status)
    time.sleep(0.05)
os.kill(child, signal.SIGKILL)
raise SystemExit("the child hangs: its hook closes a reader while the descriptors are locked")
"""


def test_descriptors_are_unlocked_before_a_forked_child_closes_its_readers() -> None:
    done = subprocess.run([sys.executable, "-c", LEASED_READER_AT_A_FORK], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_many_parts_are_read_with_few_descriptors(tmp_path: Path) -> None:
    built_packs.make_pack(tmp_path / "pack", 200, parts=200)

    def read() -> int:
        most = 24 + len(os.listdir("/proc/self/fd"))  # which a process that has run other tests leaves to its child
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        part_readers.open_readers.limit = 8
        pack = Pack(tmp_path / "pack")
        order = random.Random(0).choices(range(200), k=600)
        for index in order:
            with pack.record(index, ("key",)) as record:
                assert bytes(record["key"]) == b"sample-%05d" % index
        return len(part_readers.open_readers)

    outcome = child(read)
    assert outcome.value == 8, outcome


@pytest.mark.parametrize(
    ("soft", "expected"), [(32, 8), (8, 4), (1024, 256), (1 << 20, 512), (resource.RLIM_INFINITY, 512)]
)
def test_a_quarter_of_the_descriptors_is_used(monkeypatch: pytest.MonkeyPatch, soft: int, expected: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (soft, soft))
    assert part_readers.default_limit() == expected
