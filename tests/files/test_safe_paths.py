"""open_beneath: nothing outside the folder is ever opened, with the kernel's help and without."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from packer.files import safe_paths
from tests.support.descriptors import open_files

Open = Callable[..., int]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    """in/ with a file, a folder, links within and out of it, and a FIFO."""
    for name in ("in/a", "in/sub/b", "out/c"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    for link, target in (("file", "a"), ("outside", "../out/c"), ("up", ".."), ("down", "sub"), ("away", "/etc")):
        (tmp_path / "in" / link).symlink_to(target)
    os.mkfifo(tmp_path / "in/fifo")
    descriptor = os.open(tmp_path / "in", os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


@pytest.fixture(params=["kernel", "stepwise", "refused by a filter"])
def opener(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Open:
    if request.param == "stepwise":
        return safe_paths.open_stepwise
    if request.param != "kernel":
        monkeypatch.setattr(safe_paths, "_CALL", 1 << 20)  # no such call: ENOSYS
    return safe_paths.open_beneath


def test_a_file_and_a_folder_are_opened(folder: int, opener: Open) -> None:
    before = open_files()
    for path, content in ((b"a", b"in/a"), (b"sub/b", b"in/sub/b")):
        descriptor = opener(folder, path)
        assert os.read(descriptor, 99) == content
        assert not os.get_inheritable(descriptor)
        os.close(descriptor)
    descriptor = opener(folder, b"sub", is_folder=True)
    assert os.listdir(descriptor) == ["b"]
    os.close(descriptor)
    os.close(opener(folder, b"fifo"))  # does not wait for a writer
    assert open_files() == before


@pytest.mark.parametrize(
    ("path", "codes"),
    [
        *((name, (errno.ELOOP, errno.ENOTDIR)) for name in (b"file", b"outside", b"up", b"down", b"away")),
        *((name, (errno.ELOOP, errno.ENOTDIR)) for name in (b"down/b", b"up/out/c", b"away/passwd")),
        *((name, (errno.EXDEV,)) for name in (b"../out/c", b"sub/../../out/c", b"/etc/passwd")),
        *((name, (errno.ENOENT,)) for name in (b"none", b"none/a")),
        *(((b"a/b", (errno.ENOTDIR,))), (b"a\0", (errno.EINVAL,))),
    ],
)
def test_links_and_ways_out_are_refused(folder: int, opener: Open, path: bytes, codes: tuple[int, ...]) -> None:
    if b"\0" in path and opener is safe_paths.open_stepwise:
        return  # open_beneath has looked before
    before = open_files()
    with pytest.raises(OSError) as caught:
        opener(folder, path)
    assert caught.value.errno in codes
    assert open_files() == before


@given(
    parts=st.lists(
        st.sampled_from(["..", ".", "", "a", "sub", "b", "up", "down", "away", "out", "c", "etc"]), max_size=7
    )
)
@settings(max_examples=3 * settings().max_examples, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nothing_outside_is_opened_by_any_path(folder: int, parts: list[str]) -> None:
    path = "/".join(parts).encode()
    inside = {status(os.stat(name, dir_fd=folder)) for name in ("a", "sub", "sub/b", ".", "fifo")}
    for way in (safe_paths.open_beneath, safe_paths.open_stepwise):
        try:
            descriptor = way(folder, path)
        except OSError:
            continue
        found = status(os.fstat(descriptor))
        os.close(descriptor)
        assert found in inside


def status(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
