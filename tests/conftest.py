"""Fixtures that every test has: nothing may leak."""

import gc
import os
import signal
import sys
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from packer.errors import MissingPackage
from packer.images.backends import strict_jpeg
from packer.pack import part_readers
from tests.support.object_server import ObjectServer

# deadline off: the machines that run this are shared, and a slow example is no failure
settings.register_profile("packer", deadline=None, max_examples=20, derandomize=True, print_blob=True)
settings.register_profile("full", parent=settings.get_profile("packer"), max_examples=100)  # of scripts/test --full
settings.load_profile("packer")


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # a shell without job control makes what it starts in the background, and every child of it, deaf to Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Which libturbojpeg the run has: that of the system, none, or that of a test package; see `libraries`."""
    said = "the libturbojpeg that PyTurboJPEG finds: the system's, none, or pylibjxl's"
    parser.addoption("--libturbojpeg", choices=("system", "absent", "bundled"), default="system", help=said)


def pytest_configure(config: pytest.Config) -> None:
    """What holds here and in every process that is started from here, some thousand of them."""
    # tests run side by side: an OpenMP thread of torch that waits by spinning keeps another test from its core. A
    # training step of 2.8 s took 10 s of processor time so. It is read when torch is imported, which is later
    os.environ["OMP_WAIT_POLICY"] = "passive"
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each process would compile packer anew
    gc.disable()  # until all tests are collected: nothing of them is garbage
    # a module of the same name stands before PyTurboJPEG's
    choice = config.getoption("--libturbojpeg")
    if choice != "system":
        folder = str(Path(__file__).parent / "shims" / choice)
        sys.path.insert(0, folder)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))


def pytest_report_header() -> str:
    """The library that decodes JPEG in this run."""
    try:
        return f"JPEG: {strict_jpeg.describe(strict_jpeg.library())}"
    except MissingPackage as error:
        return f"JPEG: {error}"


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by mark
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of the cases of a test with `one_in(N)` one in N stays in the default run, the others are marked `full`.

    Which ones depends on their names alone: each test has others, so that together they meet every format and source.
    """
    items.sort(key=whole_pages_first)
    sampled: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("one_in") and not item.get_closest_marker("full"):
            sampled.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in sampled.values():
        marker = cases[0].get_closest_marker("one_in")
        assert marker is not None
        (of,) = marker.args
        cases.sort(key=lambda item: zlib.crc32(item.name.encode()))
        for item in cases[-(-len(cases) // of) :]:
            item.add_marker(pytest.mark.full)


def whole_pages_first(item: pytest.Item) -> bool:
    """The files beside this one run whole pages and examples: at the end one worker would be alone."""
    return item.nodeid.partition("::")[0].count("/") > 1


def pytest_collection_finish() -> None:
    """What is loaded by now stays, garbage too: collections, of which tests ask for many, and forks skip it."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def nothing_leaks() -> Iterator[None]:
    """After a test: no thread of packer's runs, and no reader is open that no pack uses."""
    yield
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("packer")]
    assert not left, f"threads still run: {left}"
    assert not part_readers.open_readers.unowned(), "a reader is open that nobody owns"


@pytest.fixture
def one_thread() -> Iterator[None]:
    """torch's threads would only wait for each other over images so small."""
    import torch  # noqa: PLC0415  for the few tests that train

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def object_servers() -> Iterator[list[ObjectServer]]:
    """The server of an earlier test that left it sound: the client's process goes on with it, which takes a start."""
    kept: list[ObjectServer] = []
    yield kept
    for server in kept:
        server.stop()


@pytest.fixture
def object_server(object_servers: list[ObjectServer], monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    """A small S3 server with the bucket `b`, to which URLs that begin with s3:// lead."""
    if not object_servers:
        object_servers.append(ObjectServer())
        object_servers[0].start()
    server = object_servers.pop()
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    yield server
    if server.is_sound:
        server.clear()
        object_servers.append(server)
    else:
        server.stop()
    assert not server.errors
