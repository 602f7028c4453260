"""Named hosts: requests and credentials go to the hosts that the user named, wherever an answer points."""

from collections.abc import Iterator

import pytest

from packer.errors import StoreError
from packer.stores.store import Store, StoreOptions
from packer.stores.url import parse
from tests.support.object_server import Fault, ObjectServer

PATIENT = StoreOptions(patience_seconds=30, stall_seconds=5)


@pytest.fixture
def other() -> Iterator[ObjectServer]:
    """A server under the name localhost; the named one is 127.0.0.1."""
    server = ObjectServer()
    server.put("x/part", b"other")
    server.start()
    yield server
    server.stop()


@pytest.mark.parametrize("status", ["301", "307"])
@pytest.mark.parametrize("scheme", ["s3", "http"])
def test_a_redirect_to_another_host_is_refused_at_once(
    object_server: ObjectServer, other: ObjectServer, scheme: str, status: str
) -> None:
    object_server.put("x/part", b"hello")
    target = f"{other.endpoint.replace('127.0.0.1', 'localhost')}/b/x/part"
    object_server.faults = [Fault(status, method, target=target) for method in ("GET", "HEAD")]
    store = Store(parse("s3://b/x" if scheme == "s3" else f"{object_server.endpoint}/b/x"), PATIENT)
    for do in (lambda: store.read("part", most=9), lambda: store.state("part")):
        with pytest.raises(StoreError, match="another host"):
            do()
    if scheme == "s3":
        with pytest.raises(StoreError, match="another host"):
            list(store.objects())
    assert not other.requests
    object_server.faults = []
    assert store.read("part", most=9) == b"hello"


def test_a_session_token_never_goes_without_tls(object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
    with pytest.raises(StoreError, match="AWS_SESSION_TOKEN") as raised:
        Store(parse("s3://b/x"), PATIENT).read("part", most=9)
    assert raised.value.exit_code == 4
    assert not object_server.requests
