"""Remote packs: read through a cache from a small S3 server, equal to the local pack; what goes wrong is named."""

import gc
import hashlib
import pickle
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import packer
from packer import formats
from packer.conversion.convert import convert
from packer.copies.pack_files import PackFile, in_blocks
from packer.copies.part_cache import PartCache
from packer.copies.remote_pack import RemoteParts, open_remote, remote_location
from packer.datasets.pack_dataset import PackDataset
from packer.errors import CorruptPack, InvalidRequest, ObjectChanged, StoreError
from packer.loading.loader import Loader
from packer.pack import manifest as manifests
from packer.pack import part_readers
from packer.pack.reader import Pack
from tests.support.built_packs import make_pack, record, values
from tests.support.object_server import Fault, ObjectServer
from tests.support.source_trees import photos
from tests.support.stored_files import Watch, ended, in_processes

URL = "s3://b/set/x.pack"
PARTS = 6
FORMATS = ("lmdb", "hdf5", "pth")


@pytest.fixture
def cache(base: Path) -> Path:
    return base


@pytest.fixture
def pack(server: ObjectServer, cache: Path) -> Iterator[Pack]:
    opened = opened_pack(cache)
    yield opened
    opened.close()


def opened_pack(cache: Path, *, limit: int | None = None, patience: float | None = 20, verify: str = "first") -> Pack:
    location = remote_location(URL, cache=cache, cache_limit=limit, patience=patience)
    return open_remote(location, verify=verify)


def read(pack: Pack, index: int) -> dict[str, bytes]:
    with pack.record(index, pack.schema.names) as found:
        return {name: bytes(value) for name, value in found.items()}


def part_requests(server: ObjectServer) -> dict[str, int]:
    found = {key.rpartition("/")[2]: count for (name, key), count in server.requests.items() if name == "GET"}
    return {name: count for name, count in found.items() if name.startswith("part-")}


def room_for(folder: Path, parts: int) -> int:
    """A limit that holds what an open pack keeps, and so many parts."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    of_parts = sorted(in_blocks(path.stat().st_size) for path in files if path.name.startswith("part-"))
    kept = sum(in_blocks(path.stat().st_size) for path in files if not path.name.startswith("part-"))
    return kept + parts * of_parts[-1]


# ---- reading


@pytest.mark.parametrize("folder", FORMATS, indirect=True)
def test_records_are_those_of_the_local_pack_and_each_part_is_fetched_once(
    folder: Path, pack: Pack, server: ObjectServer, cache: Path
) -> None:
    assert part_requests(server) == {}  # nothing but the manifest and the index when it is opened
    assert [read(pack, index) for index in range(len(pack))] == values(folder)
    assert part_requests(server) == {part.name: 1 for part in pack.manifest.parts}
    assert [read(pack, index) for index in range(len(pack))] == values(folder)
    assert sum(part_requests(server).values()) == PARTS
    pack.close()
    server.requests.clear()
    again = opened_pack(cache)  # as a second run does
    assert [read(again, index) for index in range(90)] == values(folder)
    assert {key for _, key in server.requests} == {"set/x.pack/packer.json"}
    again.close()


def test_only_the_parts_that_are_read_are_fetched(pack: Pack, server: ObjectServer) -> None:
    read(pack, 0)
    read(pack, 89)
    assert part_requests(server) == {"part-00000.pth": 1, "part-00005.pth": 1}


def test_several_records_at_once_are_right_where_only_one_part_fits(
    folder: Path, server: ObjectServer, cache: Path
) -> None:
    """Who waits for a part lets go of the others: two threads would wait for each other otherwise."""
    pack = opened_pack(cache, limit=room_for(folder, 1))
    rng = np.random.default_rng(0)
    wrong: list[object] = []

    def reader() -> None:
        for _ in range(5):
            indices = rng.integers(0, 90, 8).tolist()
            with pack.records(indices, ["key", "blob"]) as found:
                for index, each in zip(indices, found, strict=True):
                    if bytes(each["key"]) != record(index)["key"] or bytes(each["blob"]) != record(index)["blob"]:
                        wrong.append(index)

    with Watch(cache_of(pack).used_bytes) as used:
        threads = [threading.Thread(target=reader) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong
    assert used.most <= room_for(folder, 1)
    pack.close()


def cache_of(pack: Pack) -> PartCache:
    assert isinstance(pack.supply, RemoteParts)
    return pack.supply._cache


def test_two_packs_of_one_url_in_a_process_share_readers(pack: Pack, cache: Path, server: ObjectServer) -> None:
    other = opened_pack(cache)
    read(pack, 0)
    read(other, 0)
    assert len(part_readers.open_readers) == 1
    pack.close()
    assert read(other, 1)["key"] == b"sample-00001"  # its reader was opened for the first
    other.close()
    assert len(part_readers.open_readers) == 0


def test_readers_that_only_stay_open_make_room_for_another_process(
    folder: Path, server: ObjectServer, cache: Path
) -> None:
    limit = room_for(folder, 2)
    idle = opened_pack(cache, limit=limit)
    read(idle, 0)
    read(idle, 20)
    assert len(part_readers.open_readers) == 2  # the cache is full, and both are mapped

    def reader(_: int) -> None:
        pack = opened_pack(cache, limit=limit)
        assert read(pack, 89) == record(89)
        pack.close()

    assert ended(in_processes(1, reader)) == [0]
    assert read(idle, 0) == record(0)
    idle.close()


def test_readers_of_parts_that_were_given_up_are_closed(pack: Pack) -> None:
    """Also by another process, such as the one whose Loader has workers."""
    read(pack, 0)
    read(pack, 20)
    assert pack.supply is not None
    ended(in_processes(1, lambda _: cache_of(pack).give_up(PackFile("part-00000.pth", 0, ""))))
    while len(part_readers.open_readers) > 1:
        time.sleep(0.005)
    assert part_readers.open_readers.is_open(pack.supply.key(1))


def test_verify_open_hashes_what_lies_in_the_cache(pack: Pack, cache: Path, server: ObjectServer) -> None:
    read(pack, 0)
    pack.close()
    (part,) = cache.rglob("part-00000.pth")
    data = bytearray(part.read_bytes())
    data[-1] ^= 1
    part.write_bytes(data)
    again = opened_pack(cache, verify="open")
    assert read(again, 0) == record(0)
    assert part_requests(server)["part-00000.pth"] == 2
    again.close()


def test_parts_are_fetched_in_the_background_in_the_order_given(
    pack: Pack, server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pack.supply is not None
    asked, reserve = [], PartCache.reserve_ahead

    def reserve_ahead(self: PartCache, file: PackFile, *, since_ns: int) -> Any:
        asked.append(file.name)
        return reserve(self, file, since_ns=since_ns)

    monkeypatch.setattr(PartCache, "reserve_ahead", reserve_ahead)
    pack.supply.fetch_ahead([4, 2, 0])
    while sum(part_requests(server).values()) < 3:
        time.sleep(0.002)
    assert asked == ["part-00004.pth", "part-00002.pth", "part-00000.pth"]
    read(pack, 0)
    assert part_requests(server)["part-00000.pth"] == 1


def test_a_part_that_does_not_arrive_holds_up_no_other(pack: Pack, server: ObjectServer, cache: Path) -> None:
    assert pack.supply is not None
    server.faults.append(Fault("stall", key="part-00004.pth"))
    pack.supply.fetch_ahead([4, 2, 0])
    while len(list(cache.rglob("part-*"))) < 2:
        time.sleep(0.002)
    assert sorted(path.name for path in cache.rglob("part-*")) == ["part-00000.pth", "part-00002.pth"]
    assert part_requests(server)["part-00004.pth"] == 1
    server.faults.clear()
    server.stalled.set()
    while not list(cache.rglob("part-00004.pth")):
        time.sleep(0.002)


def test_a_data_set_that_nobody_holds_ends_its_threads(server: ObjectServer, cache: Path) -> None:
    dataset = packer.open(URL, cache=cache)
    dataset[0]
    assert dataset.fetch_ahead() is not None
    names = {thread.name for thread in threading.enumerate()}
    assert {"packer-remote-watch", "packer-remote-fetch-0"} <= names
    del dataset
    gc.collect()
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("packer-remote")]


def test_a_closed_pack_leaves_no_thread_and_no_lock(pack: Pack, server: ObjectServer, cache: Path) -> None:
    read(pack, 0)
    assert pack.supply is not None
    pack.supply.fetch_ahead([1])
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("packer-remote")]
    pack.close()
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("packer-remote")]
    other = opened_pack(cache, limit=1 << 40)
    shared = cache_of(other)
    other.close()
    assert shared.evict(1 << 40) > 0
    assert not list(cache.rglob("part-*"))


# ---- what goes wrong


def test_a_flipped_byte_is_fetched_again(server: ObjectServer, pack: Pack) -> None:
    server.faults.append(Fault("flip", key="part-00001.pth", times=1))
    assert read(pack, 20) == record(20)
    assert part_requests(server)["part-00001.pth"] == 2


def test_a_byte_that_stays_flipped_is_refused(server: ObjectServer, pack: Pack) -> None:
    server.faults.append(Fault("flip", key="part-00001.pth"))
    with pytest.raises(CorruptPack, match=rf"{URL}/part-00001.pth: .*store.*ETag") as caught:
        read(pack, 20)
    assert pack.manifest.parts[1].sha256[:16] in str(caught.value)
    assert read(pack, 0) == record(0)  # others are read nevertheless


def damage(cache: Path, name: str, what: bytes = b"") -> Path:
    """Flip a bit of a file in the cache, of `what` or at its beginning."""
    (path,) = cache.rglob(name)
    with path.open("r+b") as file:
        at = file.read().index(what)
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 4]))
    return path


def record_by_record(pack: Pack) -> list[bytes]:
    return [read(pack, index)["blob"] for index in range(90)]


def all_at_once(pack: Pack) -> list[bytes]:
    with pack.records(range(90), ["blob"]) as found:
        return [bytes(each["blob"]) for each in found]


def gathered(pack: Pack) -> list[bytes]:
    out = np.zeros((90, 4), np.uint8)
    pack.gather(np.arange(90), "pair", out)
    assert out.tobytes() == b"".join(record(index)["pair"] for index in range(90))
    return [record(index)["blob"] for index in range(90)]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("way", [record_by_record, all_at_once, gathered])
@pytest.mark.parametrize("folder", FORMATS, indirect=True)
def test_a_part_that_is_damaged_in_the_cache_is_fetched_once_more(
    folder: Path, pack: Pack, server: ObjectServer, cache: Path, way: Callable[[Pack], list[bytes]]
) -> None:
    read(pack, 20)
    read(pack, 89)
    part = pack.manifest.parts[1].name
    damage(cache, part, record(20)["pair" if way is gathered else "blob"])
    pack.close()
    again = opened_pack(cache)
    assert way(again) == [record(index)["blob"] for index in range(90)]
    assert part_requests(server) == {each.name: 1 + (each.name == part) for each in again.manifest.parts}
    assert not [key for key in part_readers.open_readers.unowned()]
    again.close()


@pytest.mark.one_in(3)
@pytest.mark.parametrize("folder", FORMATS, indirect=True)
def test_a_part_whose_structure_is_damaged_in_the_cache_is_fetched_once_more(
    folder: Path, pack: Pack, server: ObjectServer, cache: Path
) -> None:
    read(pack, 20)
    part = pack.manifest.parts[1].name
    pack.close()
    (path,) = cache.rglob(part)
    path.write_bytes(bytes(path.stat().st_size))
    again = opened_pack(cache)
    assert all_at_once(again) == [record(index)["blob"] for index in range(90)]
    assert part_requests(server)[part] == 2
    again.close()


@pytest.mark.parametrize("name", ["packer.json", "crc32.npy", "keys.npy"])
def test_what_is_damaged_of_the_head_is_fetched_once_more(
    pack: Pack, server: ObjectServer, cache: Path, name: str
) -> None:
    pack.close()
    damage(cache, name, b"NUMPY" if name == "crc32.npy" else b"sample")
    again = opened_pack(cache)
    assert read(again, 20) == record(20)
    again.close()


def test_processes_that_meet_a_damaged_part_fetch_it_once_more(pack: Pack, server: ObjectServer, cache: Path) -> None:
    """Each has it open when it is removed."""
    read(pack, 20)
    damage(cache, "part-00001.pth", record(20)["blob"])
    barrier = get_context("fork").Barrier(3)

    def reader(_: int) -> None:
        mine = opened_pack(cache)
        read(mine, 15)
        barrier.wait()
        assert read(mine, 20) == record(20)
        mine.close()

    assert ended(in_processes(3, reader)) == [0] * 3
    assert part_requests(server)["part-00001.pth"] == 2


def test_a_value_that_stays_damaged_names_the_object_and_the_cached_file(
    folder: Path, object_server: ObjectServer, cache: Path
) -> None:
    crc32 = folder / "index/crc32.npy"
    values = bytearray(crc32.read_bytes())
    values[-4 * 4 * 90 + 1] ^= 1  # sample 0, its key
    crc32.write_bytes(values)
    repacked(folder)
    object_server.put_folder(folder, "set/x.pack/")
    wrong = opened_pack(cache)
    with pytest.raises(CorruptPack, match=rf"{URL}/part-00000.pth.*{cache}/.*/part-00000.pth.*crc32"):
        read(wrong, 0)
    assert part_requests(object_server)["part-00000.pth"] == 1
    wrong.close()


def repacked(folder: Path) -> None:
    """Make the manifest that of the index files as they are."""
    manifest = manifests.read(folder)
    files = []
    for file in manifest.index:
        data = (folder / "index" / file.name).read_bytes()
        files.append(replace(file, crc32=zlib.crc32(data), sha256=hashlib.sha256(data).hexdigest()))
    (folder / "packer.json").write_bytes(replace(manifest, index=tuple(files)).sealed().to_bytes())


def test_a_pack_that_was_replaced_is_noticed(server: ObjectServer, pack: Pack, tmp_path: Path, cache: Path) -> None:
    assert read(pack, 0) == record(0)
    make_pack(tmp_path / "other", [record(number, blob=b"%d" % number) for number in range(90)], format="pth", parts=6)
    server.put_folder(tmp_path / "other", "set/x.pack/")
    assert read(pack, 1) == record(1)  # which is here
    with pytest.raises(ObjectChanged, match=rf"{URL}: .*replaced"):
        read(pack, 89)
    again = opened_pack(cache)
    assert read(again, 89)["blob"] == b"89"
    again.close()


def test_a_part_that_is_missing_is_named(server: ObjectServer, pack: Pack) -> None:
    del server.objects["set/x.pack/part-00003.pth"]
    with pytest.raises(CorruptPack, match=rf"{URL}/part-00003.pth: missing"):
        read(pack, 50)


def test_an_outage_is_waited_for(server: ObjectServer, pack: Pack) -> None:
    server.faults.append(Fault("503", key="part-00000.pth", times=3))
    assert read(pack, 0) == record(0)


def test_an_outage_that_lasts_is_an_error_with_url_and_attempts(server: ObjectServer, cache: Path) -> None:
    pack = opened_pack(cache, patience=1)
    server.faults += [Fault("503", method=method, key="part-00000.pth") for method in ("GET", "HEAD")]
    with pytest.raises(StoreError, match=rf"{URL}/part-00000.pth: .*attempts in"):
        read(pack, 0)
    assert read(pack, 89) == record(89)
    pack.close()


def test_what_is_no_pack_or_has_a_damaged_manifest_is_refused_by_its_url(server: ObjectServer, cache: Path) -> None:
    for url in ("s3://b/set", f"{URL}/index"):
        with pytest.raises(InvalidRequest, match=rf"not a pack: .*{url}/packer.json"):
            packer.open(url, cache=cache)
    key = "set/x.pack/packer.json"
    server.put(key, server.objects[key].data.replace(b"sample", b"simple"))
    with pytest.raises(CorruptPack, match=rf"{URL}/packer.json: damaged"):
        packer.open(URL, cache=cache)


@pytest.mark.parametrize("folder", ["bmp"], indirect=True)
def test_parts_that_are_folders_are_refused(server: ObjectServer, cache: Path) -> None:
    with pytest.raises(InvalidRequest, match=rf"{URL}: .*format bmp"):
        packer.open(URL, cache=cache)


def test_a_limit_below_one_part_is_refused(server: ObjectServer, cache: Path) -> None:
    with pytest.raises(InvalidRequest, match="cache_limit=8192: .*largest part"):
        packer.open(URL, cache=cache, cache_limit="8K")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give cache=, a folder with room"),
        ({"cache": "C", "cache_limit": "many"}, "'many': expected a size such as 256M"),
        ({"cache": "C", "cache_limit": 0}, "cache_limit=0: expected bytes"),
        ({"cache": "C", "cache_limit": True}, "cache_limit=True: expected bytes"),
        ({"cache": "C", "patience": -1.0}, "patience_seconds=-1.0: expected seconds"),
        ({"cache": "C", "stage": "auto"}, "stage= is for packs on a disk"),
    ],
)
def test_what_does_not_go_together_is_refused(
    server: ObjectServer, cache: Path, options: dict[str, Any], message: str
) -> None:
    given = {name: cache if value == "C" else value for name, value in options.items()}
    with pytest.raises(InvalidRequest, match=message):
        packer.open(URL, **given)


@pytest.mark.parametrize("options", [{"cache": "x"}, {"cache_limit": 5}, {"patience": 1.0}])
def test_options_of_urls_are_refused_for_folders(folder: Path, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=rf"{next(iter(options))}=.* URLs"):
        packer.open(folder, **options)


# ---- data sets and loaders


def batches(loader: Any) -> list[Any]:
    return [batch["blob"] + batch["label"].tolist() for batch in loader]


@pytest.mark.one_in(6)
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("folder", FORMATS, indirect=True)
def test_a_loader_gives_the_batches_of_the_local_pack(
    folder: Path, server: ObjectServer, cache: Path, workers: int
) -> None:
    local = packer.open(folder)
    for shuffle in (False, True):
        limit = room_for(folder, PARTS if shuffle else 3)
        with (
            packer.open(URL, cache=cache, cache_limit=limit) as dataset,
            Loader(dataset, 8, shuffle=shuffle, seed=3, num_workers=workers) as loader,
            Loader(local, 8, shuffle=shuffle, seed=3) as expected,
        ):
            assert type(dataset) is type(local)
            for _ in range(2):
                assert batches(loader) == batches(expected)


@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.full)])
def test_a_stock_data_loader_reads_it_with_workers(
    folder: Path, server: ObjectServer, cache: Path, context: str
) -> None:
    dataset = packer.open(URL, fields=["blob", "label"], cache=cache)
    dataset[0]
    loader = DataLoader(dataset, 9, num_workers=2, multiprocessing_context=context)
    found = [blob for batch in loader for blob in batch["blob"]]
    assert found == [record(number)["blob"] for number in range(90)]
    assert sum(part_requests(server).values()) == PARTS
    dataset.close()


def test_a_pickled_data_set_opens_the_same_pack(
    server: ObjectServer, cache: Path, folder: Path, tmp_path: Path
) -> None:
    dataset = packer.open(URL, cache=cache)
    expected = dataset[7]["blob"]
    text = pickle.dumps(dataset)
    dataset.close()
    make_pack(tmp_path / "other", [record(number, blob=b"other") for number in range(90)], format="pth", parts=6)
    server.put_folder(tmp_path / "other", "set/x.pack/")
    again = pickle.loads(text)
    assert isinstance(again, PackDataset)
    assert again[7]["blob"] == expected
    with pytest.raises(ObjectChanged, match="open it again"):
        again[89]
    again.close()


def test_a_pass_tells_the_supply_what_it_reads_next_and_what_no_more(
    folder: Path, server: ObjectServer, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted: list[list[int]] = []
    given_up: list[int] = []
    monkeypatch.setattr(RemoteParts, "fetch_ahead", lambda self, parts, more=False: wanted.append(list(parts)))
    monkeypatch.setattr(RemoteParts, "give_up", lambda self, parts: given_up.extend(parts))
    dataset = packer.open(URL, cache=cache, cache_limit=room_for(folder, 3))
    with Loader(torch.utils.data.Subset(dataset, range(89, -1, -1)), 15) as loader:
        for _ in loader:
            pass
        assert given_up == [2, 1, 0, 5, 4, 3, 2, 1, 0][: len(given_up)]  # the first do not fit yet
        assert len(given_up) >= 7
        assert wanted[0] == [5, 4, 3]
        assert sum(wanted, []) == [5, 4, 3, 2, 1, 0]
        state = loader.state_dict()
    wanted.clear()
    with Loader(dataset, 15, rank=1, world_size=2) as loader:
        loader.load_state_dict({**state, **loader.state_dict(), "epoch": 1, "step": 1})
        next(iter(loader))
    assert wanted[0] == [2, 3]  # its share of the room, or what it reads from at a time
    dataset.close()


def test_an_order_that_reads_from_more_parts_than_fit_is_refused(
    folder: Path, server: ObjectServer, cache: Path
) -> None:
    """Each sample of a full shuffle would fetch a part again."""
    with packer.open(URL, cache=cache, cache_limit=room_for(folder, PARTS - 2)) as dataset:
        with (
            Loader(dataset, 8, shuffle=True) as loader,
            pytest.raises(InvalidRequest, match=rf"{URL}: .*order of samples"),
        ):
            next(iter(loader))
        with Loader(dataset, 8) as loader:  # from one at a time
            assert len(batches(loader)) == 12


def test_an_endless_stream_goes_on_to_tell_what_it_reads(
    folder: Path, server: ObjectServer, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted: list[list[int]] = []
    monkeypatch.setattr(RemoteParts, "fetch_ahead", lambda self, parts, more=False: wanted.append(list(parts)))
    dataset = packer.open(URL, cache=cache, cache_limit=room_for(folder, 3))
    with Loader(dataset, 15, steps_per_epoch=4) as loader:
        for _ in range(4):
            assert len(list(loader)) == 4
    assert wanted[0] == [0, 1, 2]
    # 240 samples are two passes and the beginning of a third; how far the threads are ahead says where each list begins
    assert sum(part <= before for before, part in pairwise(sum(wanted, []))) >= 2
    assert all(part == before + 1 or part <= before for before, part in pairwise(sum(wanted, [])))
    dataset.close()


def test_parts_behind_a_pass_make_room_for_those_that_come(folder: Path, server: ObjectServer, cache: Path) -> None:
    """In the order of the pack each part is fetched once an epoch, though only half of them fit at a time."""
    dataset = packer.open(URL, cache=cache, cache_limit=room_for(folder, 3))
    with Loader(dataset, 5, threads=1) as loader:
        for batch in loader:
            assert len(batch["blob"]) == 5
            time.sleep(0.005)
    assert part_requests(server) == {f"part-{number:05d}.pth": 1 for number in range(PARTS)}
    dataset.close()


def test_orders_of_batches_download_each_part_when_it_is_read(folder: Path, server: ObjectServer, cache: Path) -> None:
    dataset = packer.open(URL, cache=cache)
    batches = [[index] for index in range(0, len(dataset), 5)]
    with Loader(dataset, batch_sampler=batches) as loader:
        assert [batch["blob"] for batch in loader] == [[dataset[index]["blob"]] for index, *_ in batches]
    with Loader(dataset, 5, weights=range(len(dataset))) as loader:
        assert sum(len(batch["blob"]) for batch in loader) == len(dataset) // 5 * 5
    assert part_requests(server) == {f"part-{number:05d}.pth": 1 for number in range(PARTS)}
    dataset.close()


def test_a_shuffle_by_blocks_needs_room_for_its_window(folder: Path, server: ObjectServer, cache: Path) -> None:
    dataset = packer.open(URL, cache=cache, cache_limit=room_for(folder, 3))
    with Loader(dataset, 5, shuffle="blocks", window=2, threads=1) as loader:
        assert loader.order.blocks is not None
        assert loader.order.blocks.most_parts == 3
        for batch in loader:
            assert len(batch["blob"]) == 5
            time.sleep(0.005)
    assert part_requests(server) == {f"part-{number:05d}.pth": 1 for number in range(PARTS)}
    with Loader(dataset, 5, shuffle="blocks", window=5) as loader, pytest.raises(InvalidRequest, match="cache_limit"):
        next(iter(loader))
    dataset.close()


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.full)])
def test_ranks_that_share_a_cache_fetch_each_part_once(
    tmp_path: Path, object_server: ObjectServer, cache: Path, ranks: int
) -> None:
    """The ranks go in step, as training does; the window and a part for each lane fit, and not the whole pack."""
    window, batch_size = 8, 4
    make_pack(tmp_path / "many", [record(number) for number in range(33 * 96)], format="pth", parts=33)
    object_server.put_folder(tmp_path / "many", "set/x.pack/")
    limit = room_for(tmp_path / "many", 12)
    step = get_context("fork").Barrier(ranks)

    def rank(number: int) -> None:
        options = {"shuffle": "blocks", "window": window, "rank": number, "world_size": ranks, "threads": 1}
        with (
            packer.open(URL, cache=cache, cache_limit=limit) as dataset,
            Loader(dataset, batch_size, **options) as loader,
        ):
            assert loader.order.blocks is not None
            assert loader.order.blocks.most_parts == 12
            for _ in loader:
                step.wait()

    assert ended(in_processes(ranks, rank)) == [0] * ranks
    assert part_requests(object_server) == {f"part-{number:05d}.pth": 1 for number in range(33)}


def test_the_page_on_remote_packs_runs(folder: Path, object_server: ObjectServer, cache: Path) -> None:
    page = (Path(packer.__file__).parent.parent / "docs/train/remote.md").read_text()
    code = page.partition("```python")[2].partition("```")[0]
    object_server.put_folder(folder, "photos.pack/")
    names: dict[str, Any] = {}
    exec(code.replace("/nvme/packer", str(cache)), names)
    assert names["batch"]["blob"]
    names["dataset"].close()


def test_one_sample_is_drawn_of_its_part_alone(tmp_path: Path, object_server: ObjectServer, cache: Path) -> None:
    """A notebook's table of the data set fetches nothing."""
    convert(photos(tmp_path / "in", 16), tmp_path / "local.pack", part_bytes=2000)
    object_server.put_folder(tmp_path / "local.pack", "local.pack/")
    with packer.open("s3://b/local.pack", cache=cache) as remote, packer.open(tmp_path / "local.pack") as local:
        assert "s3://b/local.pack" in repr(remote)
        assert "s3://b/local.pack" in remote._repr_html_()
        assert object_server.count("GET", formats.load("lmdb").SUFFIX) == 0
        assert remote.show(5).png == local.show(5).png
        assert object_server.count("GET", formats.load("lmdb").SUFFIX) == 1
