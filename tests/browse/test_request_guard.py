"""Request guard: what reaches the routes, and what every answer carries."""

import asyncio
from collections.abc import Iterator
from urllib.parse import urlsplit

import numpy as np
import pytest

from packer.browse.request_guard import MOST_REQUESTS, Entrance, RequestGuard
from tests.support.array_packs import DEPTH, IMAGE, MASK, displayed, plain
from tests.support.view_clients import ADDRESS, PORT, View, view_of

ROUTES = (
    "/",
    "/page/app.js",
    "/page/none.js",
    "/none",
    "/api/none",
    "/api/packs",
    "/api/rows",
    "/api/histogram?column=depth",
    "/api/export",
    "/api/same?row=0",
    "/api/differences",
    "/api/only",
    "/api/sample?row=0",
    "/api/overlays?rows=0",
    "/api/image?row=0&field=image&width=8",
    "/api/image?row=0&field=mask&width=0",
    "/api/depth?row=0&field=depth",
    "/api/trained?row=0&field=image&geometry=CenterCrop(8)",
    "/api/original?row=0&field=image",
    "/api/image?row=99&field=image",
)


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> Iterator[View]:
    sample = {"image": plain(9, 12), "depth": np.ones((9, 12), np.float32), "mask": np.ones((9, 12), np.uint8)}
    folder = displayed(tmp_path_factory.mktemp("guard") / "a.pack", [IMAGE, DEPTH, MASK], [sample])
    with view_of(folder) as made:
        yield made


@pytest.mark.one_in(3)
@pytest.mark.parametrize("route", ROUTES)
def test_each_route_needs_host_method_origin_and_cookie(route: str, view: View) -> None:
    answers = {"plain": view.client.get(route)}
    assert answers["plain"].status_code in (200, 400, 404)
    for name, status, headers in (
        ("rebound name", 403, {"Host": f"evil.example:{PORT}"}),
        ("another port", 403, {"Host": "127.0.0.1:80"}),
        ("no port", 403, {"Host": "127.0.0.1"}),
        ("another origin", 403, {"Origin": "https://evil.example"}),
        ("a page in a frame without origin", 403, {"Origin": "null"}),
        ("another port's page", 403, {"Origin": "http://127.0.0.1:8888"}),
        ("another site", 403, {"Sec-Fetch-Site": "cross-site"}),
        ("another port", 403, {"Sec-Fetch-Site": "same-site"}),
    ):
        answers[name] = view.client.get(route, headers=headers)
        assert answers[name].status_code == status, name
    answers["stranger"] = view.stranger.get(route)
    assert answers["stranger"].status_code == 403
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        answers[method] = view.client.request(method, route, content=b"x" if method == "POST" else None)
        assert (answers[method].status_code, answers[method].headers["allow"]) == (405, "GET, HEAD")
    answers["HEAD"] = view.client.head(route)
    assert (answers["HEAD"].status_code, answers["HEAD"].content) == (answers["plain"].status_code, b"")
    for name, answer in answers.items():
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'"), name
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    ("host", "is_ours"),
    [
        (ADDRESS, True),
        (f"localhost:{PORT}", True),
        (f"LOCALHOST:{PORT}", True),
        (f"[::1]:{PORT}", True),
        ("[::1]", False),
        ("::1", False),
        (f"::1:{PORT}", False),
        (f"[::1]:{PORT}:{PORT}", False),
        (f"[127.0.0.1]:{PORT}", False),
        (f"evil.example:{PORT}", False),
        (f"127.0.0.1.evil.example:{PORT}", False),
        (f"localhost.evil.example:{PORT}", False),
        (f"evil.example:{PORT}@{ADDRESS}", False),
        (f"{ADDRESS}@evil.example:{PORT}", False),
        (f"127.1:{PORT}", False),
        (f"2130706433:{PORT}", False),
        (f"0x7f000001:{PORT}", False),
        (f"127.0.0.1:{PORT}0", False),
        (f"127.0.0.1:0{PORT}", False),
        (f"127.0.0.1:{PORT} ", False),
        (f"localhost.:{PORT}", False),
        (f":{PORT}", False),
        ("", False),
    ],
)
def test_only_names_of_the_machine_are_the_host(host: str, is_ours: bool) -> None:
    assert Entrance("127.0.0.1", PORT).is_named(host) == is_ours


def test_a_name_that_the_user_gave_is_the_host() -> None:
    entrance = Entrance("lab.example", PORT)
    assert entrance.is_named(f"Lab.example:{PORT}")
    assert not entrance.is_named("lab.example")
    assert entrance.printed_url().startswith(f"http://lab.example:{PORT}/?token=")
    assert Entrance("0.0.0.0", PORT).address == ADDRESS  # noqa: S104
    assert Entrance("::1", PORT).address == f"[::1]:{PORT}"


def test_the_token_becomes_a_cookie_and_leaves_the_url(view: View) -> None:
    parts = urlsplit(view.entrance.printed_url())
    answer = view.stranger.get(f"/?{parts.query}")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/"
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert f"packer-{PORT}=" in cookie
    view.stranger.cookies.clear()
    for wrong in ("", "x", view.entrance.cookie, parts.query[6:] + "x", "\ud800"):
        query = {"token": wrong.encode("utf-8", "surrogatepass")}
        assert view.stranger.get("/", params=query).status_code == 403
    assert view.stranger.get(f"/api/packs?{parts.query}").status_code == 403  # the first page only


def test_the_token_for_a_command_line_works_once(view: View) -> None:
    query = urlsplit(view.entrance.url_for_one_use()).query
    assert view.stranger.get(f"/?{query}").status_code == 303
    view.stranger.cookies.clear()
    assert view.stranger.get(f"/?{query}").status_code == 403
    assert view.stranger.get(f"/?{urlsplit(view.entrance.printed_url()).query}").status_code == 303
    view.stranger.cookies.clear()


@pytest.mark.parametrize("cookie", ["", "packer-8123=", "packer-8123=x", "packer-1=VALUE", ";;;=", "\x00", "x" * 5000])
def test_a_wrong_cookie_is_no_cookie(cookie: str, view: View) -> None:
    given = cookie.replace("VALUE", view.entrance.cookie).encode()
    assert view.stranger.get("/api/packs", headers={"Cookie": given}).status_code == 403


@pytest.mark.parametrize("other", ['a={"b": "c, d"}', 'a="', "é=ü", "=", "a", "packer-80=x"])
def test_cookies_of_other_servers_do_no_harm(other: str, view: View) -> None:
    for cookies in (
        f"{other}; {view.entrance.cookie_name}={view.entrance.cookie}",
        f"packer-8123={view.entrance.cookie};{other}",
    ):
        assert view.stranger.get("/api/packs", headers={"Cookie": cookies.encode()}).status_code == 200


def test_a_long_url_is_refused(view: View) -> None:
    assert view.client.get("/api/rows", params={"where": "x" * 9000}).status_code == 414


def test_requests_beyond_the_limit_are_told_to_come_back() -> None:
    entrance = Entrance("127.0.0.1", PORT)
    opened = asyncio.Event()
    statuses: list[int] = []

    async def app(scope: object, receive: object, send: object) -> None:
        await opened.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})  # type: ignore[operator]

    async def send(message: dict[str, object]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(int(str(message["status"])))
            if statuses[-1] == 503:
                assert (b"retry-after", b"1") in message["headers"]  # type: ignore[operator]
            if len(statuses) == 10_000 - MOST_REQUESTS:
                opened.set()

    async def flood() -> None:
        guard = RequestGuard(app, entrance)  # type: ignore[arg-type]
        headers = [(b"host", ADDRESS.encode()), (b"cookie", f"{entrance.cookie_name}={entrance.cookie}".encode())]
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/",
            "raw_path": b"/",
            "query_string": b"",
            "headers": headers,
        }
        async with asyncio.timeout(60):
            await asyncio.gather(*(guard(dict(scope), None, send) for _ in range(10_000)))  # type: ignore[arg-type]

    asyncio.run(flood())
    assert sorted(statuses) == [200] * MOST_REQUESTS + [503] * (10_000 - MOST_REQUESTS)


def test_paths_lead_to_no_file(view: View) -> None:
    for path in (
        "/page/../view_server.py",
        "/page/%2e%2e/view_server.py",
        "/page/..%2fview_server.py",
        "/page//etc/passwd",
        "/page/app.js/",
        "/page/app.js%00",
        "/page/APP.JS",
        "/etc/passwd",
        "//etc/passwd",
        "/api/image?row=0&field=../../x",
        "/api/image?row=../0&field=image",
        "/api/image?row=-1&field=image",
        "/api/image?p=../1&row=0&field=image",
    ):
        assert view.client.get(path).status_code in (400, 404), path
