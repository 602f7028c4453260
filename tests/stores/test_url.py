"""URLs of object stores: what is one, and what is refused before anybody is asked."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.errors import InvalidRequest
from packer.stores.url import SCHEMES, StoreURL, is_url, parse, path_or_url


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s3://b/photos.pack", StoreURL("s3", "b", "photos.pack")),
        ("S3://b/photos.pack/", StoreURL("s3", "b", "photos.pack")),
        ("gs://my-bucket", StoreURL("gs", "my-bucket", "")),
        ("az://container/a/b c", StoreURL("az", "container", "a/b c")),
        ("s3://b/what?#%20", StoreURL("s3", "b", "what?#%20")),
        ("https://host.example:8443/data/photos.pack", StoreURL("https", "host.example:8443", "data/photos.pack")),
        ("http://[::1]:80/p", StoreURL("http", "[::1]:80", "p")),
    ],
)
def test_a_url_has_scheme_bucket_and_key(text: str, expected: StoreURL) -> None:
    assert is_url(text)
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("s3://", "a bucket or container"),
        ("s3:///key", "a bucket or container"),
        ("s3://b//x", "found an empty one"),
        ("s3://b/a/../x", "found an empty one, . or .."),
        ("s3://b/./x", "found an empty one, . or .."),
        ("s3://b/a\nx", "printable characters"),
        ("https://host/x?token=1", "without '?'"),
        ("https:///x", "a host"),
        ("ftp://host/x", "begins with s3://"),
        ("photos", "begins with s3://"),
    ],
)
def test_what_names_no_place_is_refused(text: str, says: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        parse(text)
    assert says in raised.value.message


def test_a_password_is_refused_and_not_repeated() -> None:
    with pytest.raises(InvalidRequest) as raised:
        parse("https://me:secret@host/x")
    assert "secret" not in str(raised.value)
    assert "credentials" in str(raised.value)


@pytest.mark.parametrize("name", ["s3", "s3:/b/x", "/tmp/s3://b", "C:\\x", "a:b", "file:///x", ""])
def test_names_of_files_are_no_urls(name: str) -> None:
    assert not is_url(name)


def test_a_path_is_no_url() -> None:
    assert not is_url(Path("s3://b/x"))


def test_a_path_that_is_a_url_stays_one_when_it_is_taken_again() -> None:
    path = path_or_url("s3://b/x")  # as the command line does, and then the function behind it
    assert path_or_url(path) is path
    assert path_or_url(Path("s3://b/x")) == Path("s3:/b/x")


@pytest.mark.parametrize("path", ["a\0b", "~\0b", Path("a\0b")])
def test_a_path_with_nul_is_refused(path: str | Path) -> None:
    with pytest.raises(InvalidRequest, match="without NUL"):
        path_or_url(path)


@given(
    st.sampled_from(SCHEMES),
    st.lists(
        st.text(st.characters(blacklist_categories=["Cs", "Cc"], blacklist_characters="/?#"), min_size=1), max_size=4
    ),
)
def test_the_text_of_a_url_is_the_url(scheme: str, names: list[str]) -> None:
    url = StoreURL(scheme, "bucket", "/".join(name for name in names if name not in (".", "..")))
    assert parse(str(url)) == url
    assert parse(str(url / "inner")) == url / "inner"
    assert (url / "inner").name == "inner"
