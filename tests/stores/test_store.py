"""Stores: objects listed, read and written through the client process, with a server that fails in each way it can."""

import hashlib
import json
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from packer.errors import InvalidRequest, NoObject, ObjectChanged, StorageError, StoreError
from packer.stores import client_process
from packer.stores import store as store_module
from packer.stores.store import Fetched, Store, StoredObject, StoreOptions
from packer.stores.url import parse
from tests.support.child_processes import child
from tests.support.object_server import Fault, ObjectServer

MEBIBYTE = 1 << 20
HASTY = StoreOptions(patience_seconds=1, stall_seconds=0.5)


@pytest.fixture
def store(object_server: ObjectServer) -> Store:
    """What lies below s3://b/x."""
    return Store(parse("s3://b/x"), StoreOptions(patience_seconds=20, stall_seconds=1))


@pytest.fixture
def file() -> Iterator[int]:
    """An empty file without a name."""
    with tempfile.TemporaryFile() as opened:
        yield opened.fileno()


def content(descriptor: int) -> bytes:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


def pid_of_client() -> int:
    process = client_process._clients._process
    assert process is not None
    return process[1]


# ---- what is there


def test_what_is_written_is_listed_and_read(store: Store, object_server: ObjectServer) -> None:
    assert store.state("a/b.jpg") is None
    etag = store.write("a/b.jpg", b"hello")
    assert object_server.objects["x/a/b.jpg"].data == b"hello"
    object_server.put("xx/beside.jpg", b"another prefix")
    found = store.state("a/b.jpg")
    assert found == StoredObject("a/b.jpg", 5, etag, found.modified_ns if found else 0)
    assert list(store.objects()) == [found]
    assert store.read("a/b.jpg", most=5) == b"hello"
    assert store.read("a/b.jpg", start=1, most=3) == b"ell"
    assert store.read("a/b.jpg", start=3, most=99) == b"lo"
    assert Store(parse("s3://b/x/a/b.jpg")).read(most=5) == b"hello"
    store.remove("a/b.jpg")
    store.remove("a/b.jpg")
    assert not object_server.objects.keys() & {"x/a/b.jpg"}


NAMES = st.text(
    st.characters(blacklist_categories=["Cs", "Cc", "Cn"], blacklist_characters="/"), min_size=1, max_size=40
)


@given(name=NAMES.filter(lambda name: name not in (".", "..")), data=st.binary(max_size=100))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_name_comes_back_as_it_was_given(
    store: Store, object_server: ObjectServer, name: str, data: bytes
) -> None:
    object_server.objects.clear()
    store.write(name, data)
    assert list(object_server.objects) == [f"x/{name}"]
    assert [found.name for found in store.objects()] == [name]
    assert store.read(name, most=100) == data


def test_a_listing_of_many_pages_has_each_object_once(store: Store, object_server: ObjectServer) -> None:
    names = [f"{number:05d}.jpg" for number in range(12_345)]
    for name in names:
        object_server.put(f"x/many/{name}", b"")
    object_server.put("x/other", b"")
    # at the 11th page: what the caller has got by then is not given again
    object_server.faults = [Fault("503", chance=lambda: object_server.count("GET") in range(11, 18))]
    assert [found.name for found in store.objects("many")] == [f"many/{name}" for name in names]
    assert object_server.count("GET") > 18


def test_nothing_below_a_url_is_an_empty_listing(store: Store) -> None:
    assert list(store.objects()) == []


# ---- fetching


@pytest.mark.one_in(5)
@pytest.mark.parametrize("size", [0, 1, 8 * MEBIBYTE - 1, 8 * MEBIBYTE, 30 * MEBIBYTE + 7])
def test_an_object_comes_into_a_file_hashed(object_server: ObjectServer, file: int, size: int) -> None:
    store = Store(parse("s3://b/x"))  # whose connections may stall for as long as those of a busy machine do
    data = os.urandom(size)
    object_server.put("x/part", data)
    etag = object_server.objects["x/part"].etag
    assert store.fetch("part", file, bytes=size, etag=etag) == Fetched(size, hashlib.sha256(data).hexdigest(), etag)
    assert content(file) == data
    assert object_server.sent["x/part"] == size


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", ["503", "cut", pytest.param("stall", marks=pytest.mark.full)])
def test_an_outage_in_the_middle_is_waited_for(store: Store, object_server: ObjectServer, file: int, kind: str) -> None:
    data = os.urandom(20 * MEBIBYTE)
    object_server.put("x/part", data)
    object_server.faults = [Fault(kind, key="part", times=5)]
    assert store.fetch("part", file, bytes=len(data)).sha256 == hashlib.sha256(data).hexdigest()
    assert content(file) == data
    assert object_server.faults[0].times == 0
    object_server.faults = [Fault(kind, key="part", times=1)]
    assert store.read("part", most=len(data)) == data


def test_an_outage_that_lasts_is_told_with_url_attempts_and_cause(object_server: ObjectServer, file: int) -> None:
    store = Store(parse("s3://b/x"), HASTY)
    object_server.put("x/part", bytes(100))
    object_server.faults = [Fault("503")]
    for do in (lambda: store.fetch("part", file, bytes=100, etag='"1"'), lambda: store.read("part", most=100)):
        with pytest.raises(StoreError) as raised:
            do()
        text = str(raised.value)
        assert text.startswith("s3://b/x/part: ")
        assert "503 Service Unavailable: SlowDown" in text
        assert "attempts in" in text
        assert raised.value.exit_code == 4
        assert isinstance(raised.value, OSError)


def test_a_server_that_is_not_there_is_an_outage(object_server: ObjectServer) -> None:
    object_server.stop()
    with pytest.raises(StoreError, match="attempts in"):
        Store(parse("s3://b/x"), HASTY).read("part", most=1)


def test_another_object_in_its_place_is_noticed(store: Store, object_server: ObjectServer, file: int) -> None:
    object_server.put("x/part", bytes(100))
    etag = object_server.objects["x/part"].etag
    object_server.put("x/part", b"1" * 100)
    with pytest.raises(ObjectChanged, match="open it again"):
        store.fetch("part", file, bytes=100, etag=etag)
    with pytest.raises(ObjectChanged, match="open it again"):
        store.read("part", most=100, etag=etag)
    with pytest.raises(ObjectChanged, match="99 bytes, .* 100"):
        store.fetch("part", file, bytes=99)


def test_a_file_that_cannot_be_written_is_this_machines_fault(
    store: Store, object_server: ObjectServer, tmp_path: Path
) -> None:
    object_server.put("x/part", bytes(100))
    (tmp_path / "read-only").touch()
    descriptor = os.open(tmp_path / "read-only", os.O_RDONLY)
    try:
        with pytest.raises(StorageError, match="this machine: .*descriptor") as raised:
            store.fetch("part", descriptor, bytes=100)
        assert not isinstance(raised.value, StoreError)
    finally:
        os.close(descriptor)


def test_what_is_not_there_and_what_is_forbidden_is_told_at_once(store: Store, object_server: ObjectServer) -> None:
    with pytest.raises(NoObject, match="s3://b/x/none: read: .*no such"):
        store.read("none", most=1)
    object_server.put("x/part", b"1")
    object_server.faults = [Fault("403", key="part")]
    with pytest.raises(StoreError, match="403.*AccessDenied.*credentials"):
        store.read("part", most=100)
    assert object_server.count("GET", "part") == 1


def test_a_server_without_ranges_is_told_at_once(store: Store, object_server: ObjectServer) -> None:
    object_server.put("x/part", bytes(100))
    object_server.faults = [Fault("whole", key="part")]
    with pytest.raises(StoreError, match="refused: .*non-partial response"):
        store.read("part", start=5, most=9)
    assert store.read("part", most=100) == bytes(100)


def test_bytes_that_are_wrong_are_for_the_sha256_to_tell(store: Store, object_server: ObjectServer, file: int) -> None:
    data = os.urandom(1000)
    object_server.put("x/part", data)
    object_server.faults = [Fault("flip", key="part")]
    assert store.fetch("part", file, bytes=1000).sha256 != hashlib.sha256(data).hexdigest()
    assert store.fetch("part", file, bytes=1000).sha256 == hashlib.sha256(content(file)).hexdigest()


# ---- writing


def test_a_large_file_is_uploaded_in_parts(store: Store, object_server: ObjectServer, tmp_path: Path) -> None:
    data = os.urandom(20 * MEBIBYTE + 3)
    (tmp_path / "part").write_bytes(data)
    object_server.faults = [Fault("503", "PUT", "part", times=2), Fault("lost", "PUT", "part", times=0)]
    etag = store.upload("part", tmp_path / "part")
    assert object_server.objects["x/part"].data == data
    assert object_server.objects["x/part"].etag == etag
    assert object_server.count("POST", "part") == 2  # begun once, completed once
    assert not object_server.uploads


@pytest.mark.parametrize("kind", ["403", "503"])
def test_an_upload_that_fails_is_aborted(object_server: ObjectServer, tmp_path: Path, kind: str) -> None:
    (tmp_path / "part").write_bytes(bytes(20 * MEBIBYTE))
    object_server.faults = [Fault(kind, "PUT", "part")]
    with pytest.raises(StoreError):
        Store(parse("s3://b/x"), HASTY).upload("part", tmp_path / "part")
    assert object_server.count("POST", "part") >= 1
    assert not object_server.uploads
    assert not object_server.objects


def test_creating_finds_what_another_has_put(store: Store, object_server: ObjectServer) -> None:
    assert store.create("packer.json", b"first")
    assert store.create("packer.json", b"first")
    assert not store.create("packer.json", b"second")
    assert object_server.objects["x/packer.json"].data == b"first"


@pytest.mark.parametrize("kind", ["lost", "409", "503"])
def test_an_answer_that_was_lost_is_resolved_by_reading(store: Store, object_server: ObjectServer, kind: str) -> None:
    object_server.faults = [Fault(kind, "PUT", "packer.json", times=1)]
    assert store.create("packer.json", b"mine")
    assert object_server.objects["x/packer.json"].data == b"mine"
    assert object_server.count("PUT", "packer.json") == 2


def test_of_many_that_create_one_wins(store: Store, object_server: ObjectServer) -> None:
    won: list[int] = []
    threads = [
        threading.Thread(target=lambda number=number: store.create("claim", b"%d" % number) and won.append(number))
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [object_server.objects["x/claim"].data] == [b"%d" % number for number in won]


def test_a_store_that_ignores_conditions_is_known(store: Store, object_server: ObjectServer) -> None:
    assert store.keeps_conditions("probe")
    object_server.ignores_conditions = True
    assert not store.keeps_conditions("probe")
    assert not object_server.objects
    etag = store.write("part", b"one")
    store.write("part", b"two")
    with pytest.raises(ObjectChanged, match="expected ETag"):
        store.read("part", most=100, etag=etag)


# ---- the web


def test_a_web_server_is_read_and_not_listed_nor_written(object_server: ObjectServer, file: int) -> None:
    data = os.urandom(10 * MEBIBYTE)
    object_server.put("x/part", data)
    store = Store(parse(f"{object_server.endpoint}/b/x"))
    assert store.read("part", start=5, most=7) == data[5:12]
    assert store.fetch("part", file, bytes=len(data)).sha256 == hashlib.sha256(data).hexdigest()
    found = store.state("part")
    assert found is not None and found.bytes == len(data)
    for do in (
        lambda: list(store.objects()),
        lambda: store.write("a", b""),
        lambda: store.create("a", b""),
        lambda: store.upload("a", Path("a")),
        lambda: store.remove("a"),
    ):
        with pytest.raises(InvalidRequest, match="web server"):
            do()


# ---- the client process


def test_forked_children_and_threads_share_one_client_process(store: Store, object_server: ObjectServer) -> None:
    object_server.put("x/part", b"hello")
    assert store.read("part", most=100) == b"hello"
    client = pid_of_client()
    forked = child(lambda: [store.read("part", most=5).decode(), pid_of_client()])
    assert forked.value == ["hello", client], forked
    assert store.read("part", most=100) == b"hello"
    assert pid_of_client() == client
    assert pickle.loads(pickle.dumps(store)) == store


def test_a_client_process_that_was_killed_is_replaced(store: Store, object_server: ObjectServer, file: int) -> None:
    data = os.urandom(10 * MEBIBYTE)
    object_server.put("x/part", data)
    store.read("part", start=0, most=1)
    object_server.faults = [Fault("stall", key="part", times=3)]
    killed = threading.Timer(0.3, lambda: os.kill(pid_of_client(), signal.SIGKILL))
    killed.start()
    found = store.fetch("part", file, bytes=len(data))
    killed.join()
    assert found.sha256 == hashlib.sha256(data).hexdigest()
    os.kill(pid_of_client(), signal.SIGKILL)
    assert store.read("part", most=len(data)) == data


@pytest.mark.parametrize("asked", ["as it starts", "once it has ended"])
def test_a_client_process_that_always_ends_is_told(
    store: Store, object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """Also before the connection can be given to it: the kernel ends what is over its memory at any time."""
    start = client_process._clients._start

    def ended(environment: dict[str, str]) -> socket.socket:
        master = start(environment)
        os.waitid(os.P_PID, pid_of_client(), os.WEXITED | os.WNOWAIT)
        return master

    client_process._clients._forget()
    monkeypatch.setattr(client_process, "_PROGRAM", "pass")
    if asked == "once it has ended":
        monkeypatch.setattr(client_process._clients, "_start", ended)
    with pytest.raises(StoreError, match="s3://b/x/part: read: .* 4 times"):
        store.read("part", most=100)


def test_the_client_process_ends_with_the_last_that_shares_it(object_server: ObjectServer) -> None:
    object_server.put("x/part", b"hello")
    program = (
        "import os; from packer.stores import client_process; from packer.stores.store import Store;"
        "from packer.stores.url import parse; store = Store(parse('s3://b/x')); store.read('part', most=5);"
        "print(client_process._clients._process[1], flush=True); os.kill(os.getpid(), 9)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    client = int(ended.stdout)
    until = time.monotonic() + 30
    while os.path.exists(f"/proc/{client}/stat") and time.monotonic() < until:
        if Path(f"/proc/{client}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            break  # nobody reaps it where process 1 does not
        time.sleep(0.02)
    else:
        assert not os.path.exists(f"/proc/{client}/stat")


def test_another_account_is_another_client_process(
    store: Store, object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    object_server.put("x/part", b"hello")
    store.read("part", most=100)
    client = pid_of_client()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "another")
    assert store.read("part", most=100) == b"hello"
    assert pid_of_client() != client


def test_obstore_is_never_imported_here(store: Store, object_server: ObjectServer) -> None:
    store.write("part", b"")
    assert "obstore" not in sys.modules


@pytest.mark.parametrize("value", [-1, True, "1", float("nan")])
def test_options_are_checked(value: float) -> None:
    with pytest.raises(InvalidRequest, match="patience_seconds"):
        StoreOptions(patience_seconds=value)


def test_an_upload_whose_last_answer_is_lost_is_done_again(object_server: ObjectServer, tmp_path: Path) -> None:
    """The client asks again, and the server has no such upload any more; a bucket that is not there is told."""
    large = tmp_path / "large"
    large.write_bytes(bytes(range(256)) * (1 << 16))
    object_server.faults = [
        Fault("lost", "POST", "x/large", times=1, chance=lambda: any(map(len, object_server.uploads.values())))
    ]
    store = Store(parse("s3://b/x"))
    etag = store.upload("large", large)
    assert object_server.faults[0].times == 0
    assert object_server.objects["x/large"].data == large.read_bytes()
    found = store.state("large")
    assert found is not None
    assert (found.bytes, found.etag) == (1 << 24, etag)
    assert not object_server.uploads


def test_google_s_dialect(object_server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same objects by the XML API of Google: names with a slash in one component, a condition of its own."""
    account = {"gcs_base_url": object_server.endpoint, "disable_oauth": True}
    names = ("client_email", "private_key", "private_key_id")
    (tmp_path / "account.json").write_text(json.dumps({**account, **dict.fromkeys(names, "")}))
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", str(tmp_path / "account.json"))
    monkeypatch.setenv("GOOGLE_ALLOW_HTTP", "true")
    store = Store(parse("gs://b/x"))  # nothing is slow here but a busy machine
    etag = store.write("a/1", b"one")
    assert store.read("a/1", start=1, most=2, etag=etag) == b"ne"
    assert store.create("claim", b"1") and store.create("claim", b"1") and not store.create("claim", b"2")
    large = tmp_path / "large"
    large.write_bytes(bytes(range(256)) * (1 << 17))
    store.upload("large", large)
    assert object_server.objects["x/large"].data == large.read_bytes() and not object_server.uploads
    assert [(found.name, found.bytes) for found in store.objects()] == [("a/1", 3), ("claim", 1), ("large", 1 << 25)]
    store.remove("a/1")
    assert store.state("a/1") is None


# ---- a server that lies


def listed(server: ObjectServer, *rows: tuple[str, int], at: str = "2026-11-24T10:00:00Z", more: str = "") -> None:
    """Have every listing answered with these rows. more: the token of a next page."""
    items = "".join(
        f"<Contents><Key>{key}</Key><Size>{size}</Size><ETag>e</ETag><LastModified>{at}</LastModified></Contents>"
        for key, size in rows
    )
    token = f"<NextContinuationToken>{more}</NextContinuationToken>" if more else ""
    server.listing = f"<R><IsTruncated>{str(bool(more)).lower()}</IsTruncated>{token}{items}</R>"


@pytest.mark.parametrize(
    ("rows", "options"),
    [
        ([("x/a", 1), ("x/b", 1)], {"more": "again"}),  # one page that never ends
        ([("x/b", 1), ("x/a", 1)], {}),
        ([("x/a", 1), ("x/a", 1), ("x/a", 1)], {}),
        ([("other/a", 1)], {}),
        ([("xx/a", 1)], {}),
        ([("x/a", 1 << 63)], {}),
        ([("x/a", 1 << 51)], {}),
        ([(f"x/{'a' * 5000}", 1)], {}),
        ([("x/a", 1)], {"at": "+99999-01-01T00:00:00Z"}),
        ([("x/a", 1)], {"at": "yesterday"}),
    ],
)
def test_a_listing_that_cannot_be_is_refused_at_once(
    store: Store, object_server: ObjectServer, rows: list[tuple[str, int]], options: dict[str, str]
) -> None:
    listed(object_server, *rows, **options)
    with pytest.raises(StoreError, match="refused"):
        list(store.objects())
    if "more" not in options:
        assert object_server.count("GET") == 1


def test_a_listing_that_is_no_listing_is_asked_for_once(store: Store, object_server: ObjectServer) -> None:
    object_server.listing = "<a><b>"
    with pytest.raises(StoreError, match="refused"):
        list(store.objects())
    assert object_server.count("GET") == 1


def test_a_listing_ends_at_the_most_objects(
    store: Store, object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_MOST_OBJECTS", 3)
    names = ["a", "b", "c", "d"]
    listed(object_server, *((f"x/{name}", 1) for name in names))
    with pytest.raises(StoreError, match="at most 3"):
        list(store.objects())
    listed(object_server, *((f"x/{name}", 1) for name in names[:3]))
    assert [found.name for found in store.objects()] == names[:3]


@pytest.mark.parametrize(
    "names",
    [
        ["a", "a!", "a-b.jpg", "a-b/y", "a/x", "a0"],  # by bytes, as S3 has them
        ["a", "a/x", "a!", "a-b/y", "a-b.jpg", "a0"],  # by components, as SeaweedFS has them
        ["", "a-b/x", "a/", "a/x"],  # with what consoles make for folders
    ],
)
def test_a_listing_rises_by_bytes_or_by_components(store: Store, object_server: ObjectServer, names: list[str]) -> None:
    listed(object_server, *((f"x/{name}", 0) for name in names))
    assert [found.name for found in store.objects()] == [name.rstrip("/") for name in names if name]


def test_a_date_that_no_number_of_64_bits_holds_is_cut(store: Store, object_server: ObjectServer) -> None:
    for at, expected in (("9999-01-01T00:00:00Z", (1 << 63) - 1), ("0001-01-01T00:00:00Z", 0)):
        listed(object_server, ("x/a", 1), at=at)
        assert [found.modified_ns for found in store.objects()] == [expected]


@pytest.mark.parametrize("kind", ["longer", "chunked"])
def test_no_more_bytes_are_taken_than_were_named(
    store: Store, object_server: ObjectServer, file: int, kind: str
) -> None:
    """Counted where they are sent: a GiB, whatever was listed and asked for."""
    object_server.put("x/part", bytes(64 << 10))
    etag = object_server.objects["x/part"].etag
    for do in (
        lambda: store.read("part", most=64 << 10),
        lambda: store.read("part", start=5, most=10),
        lambda: store.fetch("part", file, bytes=64 << 10, etag=etag),
        lambda: store.create("part", bytes(64 << 10)) or store.read("part", most=5),
    ):
        object_server.sent.clear()
        object_server.faults = [Fault(kind, key="part")]
        with pytest.raises(StoreError, match=r"refused|changed"):
            do()
        assert object_server.sent["x/part"] < 32 * MEBIBYTE  # what sockets hold on the way


def test_an_object_that_is_larger_than_named_is_not_read(store: Store, object_server: ObjectServer) -> None:
    object_server.put("x/part", bytes(100))
    with pytest.raises(StoreError, match="at most 99 .* 100"):
        store.read("part", most=99)
    assert len(store.read("part", most=100)) == 100


# ---- patience


def test_the_last_wait_ends_with_patience_and_one_more_try(object_server: ObjectServer) -> None:
    object_server.faults = [Fault("503")]
    with pytest.raises(StoreError) as raised:
        Store(parse("s3://b/x"), StoreOptions(patience_seconds=2, stall_seconds=1)).read("part", most=1)
    found = re.search(r"attempts in ([0-9.]+) s", str(raised.value))
    assert found is not None and float(found[1]) >= 2


def test_patience_is_measured_by_who_asks(
    object_server: ObjectServer, file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that sends a byte now and then never stalls, and its object would come in the end."""
    monkeypatch.setattr(client_process, "_LAST_TRY_SECONDS", 0.5)
    object_server.put("x/part", bytes(100))
    object_server.faults = [Fault("drip", key="part")]
    store = Store(parse("s3://b/x"), StoreOptions(patience_seconds=1, stall_seconds=30))
    for do in (lambda: store.read("part", most=100), lambda: store.fetch("part", file, bytes=100)):
        with pytest.raises(StoreError, match="nothing came"):
            do()


def test_what_comes_slowly_but_comes_is_waited_for(
    object_server: ObjectServer, file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3 MiB, a quarter in each tenth of a second."""
    monkeypatch.setattr(client_process, "_LAST_TRY_SECONDS", 0.0)
    object_server.put("x/part", bytes(3 * MEBIBYTE))
    object_server.faults = [Fault("slow", key="part")]
    store = Store(parse("s3://b/x"), StoreOptions(patience_seconds=0.9, stall_seconds=30))
    assert store.fetch("part", file, bytes=3 * MEBIBYTE).bytes == 3 * MEBIBYTE
