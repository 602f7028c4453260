"""Request guard: the ASGI application around all routes. It refuses requests that our own page did not make.

Without it, a page of another site can send requests to this server through a form or an image. If the name of that site
resolves to 127.0.0.1 (DNS rebinding), the page can even read the responses. Other users of the machine can reach the
port, too. A request must meet these conditions, which are checked in this order:

| condition | response if it is not met |
|---|---|
| at most `MOST_REQUESTS` requests are in progress | 503 and Retry-After |
| Host is localhost, an IP address or the name of `--host`, with the port of the server | 403 |
| the method is GET or HEAD | 405 |
| the target has at most `MOST_TARGET_BYTES` | 414 |
| Origin, if sent, is this server; Sec-Fetch-Site, if sent, is same-origin or none | 403 |
| the request contains the cookie, or a token in the URL: then a redirect sets the cookie | 403 |

With DNS rebinding, Host contains the name of the other site. An IP address in Host is therefore safe.
"""

import hmac
import json
import secrets
from ipaddress import ip_address
from urllib.parse import parse_qsl

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_REQUESTS = 128
MOST_TARGET_BYTES = 8192
TOKEN = "token"  # the parameter of the first URL

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


def json_response(data: object, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a response of ASCII JSON. Bytes of a key that are not UTF-8 are escaped as surrogates (PEP 383)."""
    body = json.dumps(data, allow_nan=False, separators=(",", ":")).encode("ascii")
    return Response(body, status, {"Cache-Control": "no-store", **(headers or {})}, "application/json")


def refusal(status: int, reason: str, headers: dict[str, str] | None = None) -> Response:
    """Return a response {"error": reason}."""
    return json_response({"error": reason}, status=status, headers=headers)


class Entrance:
    """The secrets that give a browser access. A URL with a token sets `cookie`, which is part of each later request.

    Other users of the machine can read the URL in the command line that starts a browser. The token of this URL
    therefore works once. The token of the printed URL works until the server ends.
    """

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self.cookie = secrets.token_urlsafe(24)
        self.cookie_name = f"packer-{port}"  # cookies of one host are sent to all of its ports
        self._printed = secrets.token_urlsafe(24)
        self._once: str | None = None

    @property
    def address(self) -> str:
        """Return HOST:PORT for a URL. For a server on all addresses, HOST is 127.0.0.1 or [::1]."""
        shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"[{shown}]:{self.port}" if ":" in shown else f"{shown}:{self.port}"

    def printed_url(self) -> str:
        """Return the URL for the terminal."""
        return f"http://{self.address}/?{TOKEN}={self._printed}"

    def url_for_one_use(self) -> str:
        """Return a URL for the command line of a browser. Its token works once."""
        self._once = secrets.token_urlsafe(24)
        return f"http://{self.address}/?{TOKEN}={self._once}"

    def admits(self, token: str) -> bool:
        """Return True if a token from a URL is valid. A token for one use becomes invalid."""
        if self._once is not None and _equal(token, self._once):
            self._once = None
            return True
        return _equal(token, self._printed)

    def is_named(self, host: str) -> bool:
        """Return True if the header Host names this server."""
        name, _, port = host.rpartition(":")
        if port != str(self.port):
            return False
        if name.lower() in ("localhost", self.host.lower()):
            return True
        is_bracketed = name.startswith("[") and name.endswith("]")
        try:
            return (ip_address(name[1:-1] if is_bracketed else name).version == 6) == is_bracketed
        except ValueError:
            return False

    def is_known(self, cookies: str) -> bool:
        """Return True if the header Cookie contains the cookie of this server."""
        return _equal(cookie_parser(cookies).get(self.cookie_name, ""), self.cookie)


class RequestGuard:
    """The ASGI application that checks requests, calls `app`, and adds the security headers to every response."""

    def __init__(self, app: ASGIApp, entrance: Entrance) -> None:
        self._app = app
        self._entrance = entrance
        self._count = 0  # requests in progress

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        self._count += 1
        try:
            response = self._answer(scope)
            await (response or self._app)(scope, receive, send_guarded)
        finally:
            self._count -= 1

    def _answer(self, scope: Scope) -> Response | None:
        """Return the response to a request, or None if the routes must answer it."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self._count > MOST_REQUESTS:
            return refusal(503, f"more than {MOST_REQUESTS} requests at once; try again", {"Retry-After": "1"})
        if not self._entrance.is_named(host):
            return refusal(403, f"expected the address {self._entrance.address}; open the URL that packer view printed")
        if scope["method"] not in ("GET", "HEAD"):
            return refusal(405, "expected GET or HEAD: packer view only reads", {"Allow": "GET, HEAD"})
        if len(scope["raw_path"]) + len(scope["query_string"]) > MOST_TARGET_BYTES:
            return refusal(414, f"expected a URL of at most {MOST_TARGET_BYTES} bytes")
        if headers.get("origin", f"http://{host}") != f"http://{host}":
            return refusal(403, "this request comes from a page of another site")
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return refusal(403, "this request comes from another site; copy the URL into the address bar")
        return self._entered(scope, headers)

    def _entered(self, scope: Scope, headers: Headers) -> Response | None:
        token = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)).get(TOKEN)
        if scope["path"] == "/" and token is not None and self._entrance.admits(token):
            response = RedirectResponse("/", 303, {"Cache-Control": "no-store"})  # the fragment stays
            cookie = self._entrance
            response.set_cookie(cookie.cookie_name, cookie.cookie, path="/", httponly=True, samesite="strict")
            return response
        if not self._entrance.is_known(headers.get("cookie", "")):
            return refusal(403, "no cookie of this server; open the URL that packer view printed")
        return None


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "surrogatepass"), other.encode())
