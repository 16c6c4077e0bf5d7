# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Serves the page to browsers of this machine, and to nobody else.

It is the standard library's server: four fixed answers and one stream need no framework, which
would take longer to load than the whole of `klogger top` may. Each connection has a thread, of
which there are few.

Every user of this machine can connect to 127.0.0.1. Only who knows the secret word of the path is
answered. A page from elsewhere whose name was made to mean 127.0.0.1 (DNS rebinding) shows by its
Host. No part of a request is ever the name of a file.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hmac
import json
import os
import secrets
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from types import TracebackType
from urllib.parse import parse_qs

from klogger import durations, vega
from klogger.document import file_of
from klogger.failure import Failure
from klogger_lab.top.page.hub import Hub, Sent

ADDRESS = "127.0.0.1"
# The port may be another one: that of `ssh -L`.
HOSTS = frozenset({ADDRESS, "localhost"})
# Connections at once, and analyses that one may ask for. If there are more, the oldest one goes
# that has not shown the secret word yet: other users must not be able to keep the page's out.
CONNECTIONS_MAX = 32
CHOSEN_MAX = 64
# Seconds that a browser may take to say what it wants, or to read a part of a frame.
PATIENCE = 20.0
# Seconds that all browsers together get to read that this is the end.
LAST_WORDS = 3.0
# Seconds between two words on a stream, so that a browser sees whether the connection stands.
ALIVE = 1.0
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline';"
        " connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def own(name: str) -> str:
    return resources.files("klogger_lab.top.page").joinpath(name).read_text()


# What is served, beside the stream: its type, and what makes it.
FILES: dict[str, tuple[str, Callable[[], str]]] = {
    "": ("text/html", lambda: own("page.html")),
    "page.css": ("text/css", lambda: file_of("style.css") + own("page.css")),
    "page.js": (
        "text/javascript",
        lambda: "\n".join([durations.script(), file_of("page.js"), own("page.js")]),
    ),
    "vega.js": ("text/javascript", vega.script),
}


@functools.cache
def file(name: str) -> tuple[str, bytes]:
    kind, make = FILES[name]
    return kind, make().encode()


class Handler(BaseHTTPRequestHandler):
    """One request. HTTP/1.0: the connection ends with the answer."""

    server: Listener
    timeout = PATIENCE

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        token, slash, name = path.removeprefix("/").partition("/")
        if not self.may(token):
            self.send_error(HTTPStatus.FORBIDDEN)
        elif not slash:
            # What the page loads is found beside it.
            self.head(HTTPStatus.FOUND, "text/plain")
            self.send_header("Location", f"/{self.server.token}/")
            self.end_headers()
        elif name == "events":
            try:
                asked = parse_qs(query, max_num_fields=CHOSEN_MAX)
            except ValueError:
                self.send_error(HTTPStatus.BAD_REQUEST)
                return
            self.stream(tuple(asked.get("analysis", ())))
        elif name in FILES:
            kind, body = file(name)
            self.answer(HTTPStatus.OK, kind, body)
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def refuse(self) -> None:
        self.send_error(HTTPStatus.METHOD_NOT_ALLOWED)

    do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = refuse

    def may(self, token: str) -> bool:
        """Whether it is from a page of ours, by somebody who was told its address."""
        hosts = self.headers.get_all("Host") or []
        named = len(hosts) == 1 and hosts[0].partition(":")[0] in HOSTS
        may = named and hmac.compare_digest(token.encode(), self.server.token.encode())
        if may:
            self.server.know(self.connection)
        return may

    def answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.head(status, kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def head(self, status: HTTPStatus, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        for name, value in HEADERS.items():
            self.send_header(name, value)
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET")

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Without a word of the request."""
        status = HTTPStatus(code)
        self.close_connection = True
        self.answer(status, "text/plain", f"{status.value} {status.phrase}\n".encode())

    def stream(self, wanted: tuple[str, ...]) -> None:
        """Each frame when it comes, until the browser or the recording ends."""
        self.head(HTTPStatus.OK, "text/event-stream")
        self.end_headers()
        at = 0
        with self.server.hub.reader(wanted):
            while True:
                sent = self.server.hub.wait(at, ALIVE)
                self.wfile.write(event(sent))
                if sent is not None:
                    at = sent.number
                    if sent.ended:
                        return

    def version_string(self) -> str:
        return "klogger"

    def log_message(self, *_: object) -> None:
        """The terminal is not for requests."""


def event(sent: Sent | None) -> bytes:
    if sent is None:
        return b"event: alive\ndata:\n\n"
    kind = b"end" if sent.ended else b"frame"
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (sent.number, kind, sent.data)


class Listener(ThreadingHTTPServer):
    daemon_threads = True
    # When it is closed, nobody waits for a browser.
    block_on_close = False

    def __init__(self, port: int, hub: Hub) -> None:
        self.hub = hub
        self.token = secrets.token_urlsafe(24)
        self.lock = threading.Lock()
        # Of each connection, in the order in which they came: whether it has shown the secret word.
        self.known: dict[socket.socket, bool] = {}
        super().__init__((ADDRESS, port), Handler)

    def process_request(self, request: object, client_address: object) -> None:
        """In a thread of its own, if there is room for one more."""
        assert isinstance(request, socket.socket)
        if not self.has_room():
            self.shutdown_request(request)
            return
        with self.lock:
            self.known[request] = False
        try:
            super().process_request(request, client_address)
        except BaseException:
            self.forget(request)
            raise

    def process_request_thread(self, request: object, client_address: object) -> None:
        assert isinstance(request, socket.socket)
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.forget(request)

    def has_room(self) -> bool:
        """For one more; a stranger makes room for it."""
        with self.lock:
            if len(self.known) < CONNECTIONS_MAX:
                return True
            stranger = next((one for one, known in self.known.items() if not known), None)
            if stranger is None:
                return False
            del self.known[stranger]
        # Its thread sees the end of what it reads, and closes it.
        with contextlib.suppress(OSError):
            stranger.shutdown(socket.SHUT_RDWR)
        return True

    def know(self, connection: socket.socket) -> None:
        with self.lock:
            if connection in self.known:
                self.known[connection] = True

    def forget(self, connection: socket.socket) -> None:
        with self.lock:
            self.known.pop(connection, None)

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that has gone, or that sent nonsense: no matter of ours."""


class Server:
    """To be entered; when it is left, all browsers are told that this is the end."""

    def __init__(self, hub: Hub, port: int = 0) -> None:
        if not 0 <= port <= 65535:
            raise Failure(f"--port {port}: a port is a number from 0 to 65535")
        try:
            self.listener = Listener(port, hub)
        except OSError as error:
            raise cannot_listen(port, error) from None
        self.hub = hub
        self.thread = threading.Thread(target=self.listener.serve_forever, daemon=True)

    @property
    def port(self) -> int:
        return int(self.listener.server_address[1])

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self.port}/{self.listener.token}/"

    def __enter__(self) -> Server:
        self.thread.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        said = str(error) if isinstance(error, Failure) else ""
        self.hub.publish(json.dumps({"reason": said}).encode(), ended=True)
        self.hub.wait_empty(LAST_WORDS)
        self.listener.shutdown()
        self.listener.server_close()


def cannot_listen(port: int, error: OSError) -> Failure:
    why = os.strerror(error.errno or 0)
    if error.errno == errno.EADDRINUSE:
        return Failure(
            f"--port {port}: another program listens there already",
            help="give another port, or none: then a free one is chosen",
        )
    return Failure(f"cannot listen on {ADDRESS}, port {port}: {why}")
