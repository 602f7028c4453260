"""benchmarks/remote.py: the peers keep to the protocol, the proxy makes the faults that it is told, sums are right."""

import http.client
import importlib
import inspect
import os
import random
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import pytest

from benchmarks import remote
from benchmarks.harness.remote_contestant import digests
from benchmarks.harness.remote_job import RemoteJob
from benchmarks.harness.remote_ranks import CacheWatch, Outcome
from benchmarks.harness.s3_proxy import Faults, Flip, Proxy
from tests.support.object_server import BUCKET, ObjectServer

BODY = random.Random(0).randbytes(300_000)


def outcome(*ranks: list[list[int]], failure: str = "") -> Outcome:
    """What ranks with these batches delivered; the crc32 of each image is its number."""
    found = [{"is_whole": True, "epochs": [{"batches": batches, "digests": batches}]} for batches in ranks]
    return Outcome(found, failure, 0, 0, [])


def upstream(server: ObjectServer) -> tuple[str, int]:
    host, port = server.endpoint.removeprefix("http://").split(":")
    return host, int(port)


def got(proxy: Proxy, key: str, **headers: str) -> bytes:
    """An object as it comes through the proxy; raises HTTPError, IncompleteRead."""
    connection = http.client.HTTPConnection(proxy.endpoint.removeprefix("http://"))
    try:
        connection.request("GET", f"/{BUCKET}/{key}", headers={name.title(): value for name, value in headers.items()})
        answer = connection.getresponse()
        body = answer.read()
        return body if answer.status in (200, 206) else str(answer.status).encode()
    finally:
        connection.close()


@pytest.mark.parametrize("name", remote.PEERS)
def test_every_remote_peer_keeps_to_the_protocol(name: str) -> None:
    peer = importlib.import_module(f"benchmarks.remote_peers.{name}")
    assert peer.DOES and peer.PACKAGES and peer.VARIANTS[0] == ""
    assert list(inspect.signature(peer.prepare).parameters) == ["job"]
    assert list(inspect.signature(peer.opened).parameters) == ["job"]
    assert {"epoch", "state", "restore"} <= set(dir(peer.opened))


def test_a_remote_job_survives_the_way_to_the_other_process(tmp_path: Path) -> None:
    job = RemoteJob(tmp_path, "s3://b/x", tmp_path / "c", tmp_path / "o", save=tmp_path / "s", digests=True)
    assert RemoteJob.from_text(job.to_text()) == job
    assert job.task.task == "full" and not job.task.crops


def test_the_proxy_passes_on_what_is_there_and_counts_it(object_server: ObjectServer) -> None:
    object_server.put("pack/part", BODY)
    with Proxy(upstream(object_server)) as proxy:
        proxy.begin(Faults())
        assert got(proxy, "pack/part") == BODY
        assert got(proxy, "pack/part", range="bytes=1000-1999") == BODY[1000:2000]
        found = proxy.counts()
    assert found["objects"] == found["requests"] == 2
    assert len(BODY) + 1000 <= found["bytes"] < len(BODY) + 3000


def test_the_proxy_changes_one_byte_wherever_a_range_begins(object_server: ObjectServer) -> None:
    object_server.put("pack/part", BODY)
    with Proxy(upstream(object_server)) as proxy:
        proxy.begin(Faults(flip=Flip("pack/part", 1500)))
        whole, part = got(proxy, "pack/part"), got(proxy, "pack/part", range="bytes=1000-1999")
        without = got(proxy, "pack/part", range="bytes=2000-2999")
    assert [at for at in range(len(BODY)) if whole[at] != BODY[at]] == [1500]
    assert [at for at in range(1000) if part[at] != BODY[1000 + at]] == [500]
    assert without == BODY[2000:3000]


def test_the_proxy_answers_503_and_cuts_as_often_as_it_is_told(object_server: ObjectServer) -> None:
    object_server.put("pack/part", BODY)
    found = {"503": 0, "cut": 0, "whole": 0}
    with Proxy(upstream(object_server)) as proxy:
        proxy.begin(Faults(share=0.5, seed=3))
        for _ in range(40):
            try:
                body = got(proxy, "pack/part")
            except http.client.IncompleteRead as error:
                assert BODY.startswith(error.partial)
                found["cut"] += 1
            else:
                found["whole" if body == BODY else body.decode()] += 1
        counts = proxy.counts()
    assert found == {"503": counts["503"], "cut": counts["cut"], "whole": 40 - counts["503"] - counts["cut"]}
    assert found["503"] and found["cut"] and found["whole"]


def test_listings_meet_no_fault(object_server: ObjectServer) -> None:
    object_server.put("pack/part", BODY)
    with Proxy(upstream(object_server)) as proxy:
        proxy.begin(Faults(share=1.0))
        with urlopen(f"{proxy.endpoint}/{BUCKET}?list-type=2&prefix=pack") as answer:
            assert b"pack/part" in answer.read()
        assert proxy.counts()["requests"] == 1 and "objects" not in proxy.counts()


def test_a_cache_counts_files_without_a_name_and_never_two_that_followed_each_other(tmp_path: Path) -> None:
    watch = CacheWatch.__new__(CacheWatch)
    watch._folder = tmp_path
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/part").write_bytes(bytes(8192))
    with (tmp_path / "gone").open("wb") as file:
        file.write(bytes(4096))
        file.flush()
        (tmp_path / "gone").unlink()
        assert sum(watch._blocks([os.getpid()]).values()) * 512 == 8192 + 4096
        assert sum(watch._blocks([]).values()) * 512 == 8192


def test_photos_are_counted_over_all_ranks() -> None:
    both = outcome([[0, 2], [4]], [[1, 3], [5]])
    assert remote.is_once(both.numbers(), 6) and both.is_whole
    assert not remote.is_once(both.numbers(), 7)
    assert not remote.is_once([*both.numbers(), 0], 6)
    assert both.wrong([0, 1, 2, 3, 4, 5]) == 0
    assert both.wrong([0, 1, 2, 9, 4, 5]) == 1
    assert not outcome([[0]], failure="exit code 1").is_whole


def test_digests_are_of_the_pixels_whatever_their_order_in_memory() -> None:
    images = np.arange(2 * 3 * 4 * 5, dtype=np.uint8).reshape(2, 3, 4, 5)
    assert digests(images) == digests(np.ascontiguousarray(images.transpose(0, 2, 3, 1)))
    assert len(set(digests(images))) == 2


def test_label_variance_is_one_of_a_full_shuffle_and_large_of_class_by_class() -> None:
    labels = [str(number // 100) for number in range(1000)]
    order = list(range(1000))

    def batches() -> list[list[int]]:
        return [order[start : start + 50] for start in range(0, 1000, 50)]

    in_order = remote.variance_ratio(batches(), labels, 50)
    shuffled = []
    for seed in range(20):
        random.Random(seed).shuffle(order)
        shuffled.append(remote.variance_ratio(batches(), labels, 50))
    assert in_order == pytest.approx(50 * 0.9 / (0.9 * 950 / 999))
    assert sum(shuffled) / 20 == pytest.approx(1, abs=0.05)
