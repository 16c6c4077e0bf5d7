# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Who is answered by the server of `klogger top --html`, and with what; readers that are slow, many
or gone.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from klogger.failure import Failure
from klogger_lab.top.page import server as serving
from klogger_lab.top.page.hub import Hub
from klogger_lab.top.page.server import CONNECTIONS_MAX, Server

PATIENCE_S = 180
# More than the buffers of both ends of a connection hold.
BIG = 16 << 20


@pytest.fixture
def hub() -> Hub:
    return Hub(first=("quanta",))


@pytest.fixture
def server(hub: Hub) -> Iterator[Server]:
    with Server(hub) as found:
        yield found


def connect(server: Server) -> socket.socket:
    found = socket.create_connection(("127.0.0.1", server.port), PATIENCE_S)
    found.settimeout(PATIENCE_S)
    return found


def ask(server: Server, target: str, method: str = "GET", host: str | None = None) -> str:
    """The whole answer to a request, until the server closes the connection."""
    host = f"127.0.0.1:{server.port}" if host is None else host
    with connect(server) as found:
        found.sendall(f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode("latin-1"))
        return everything(found)


def everything(connection: socket.socket) -> str:
    pieces = []
    while piece := connection.recv(1 << 16):
        pieces.append(piece)
    return b"".join(pieces).decode()


def status(answer: str) -> int:
    return int(answer.split(" ", 2)[1])


def token(server: Server) -> str:
    return server.url.split("/")[3]


def events(server: Server, query: str = "") -> socket.socket:
    """A reader, whose head has been read."""
    found = connect(server)
    found.sendall(
        f"GET /{token(server)}/events{query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    )
    # The first frame may come with it.
    until(found, b"\r\n\r\n", 1)
    return found


def until(connection: socket.socket, end: bytes, at_once: int = 1 << 20) -> bytes:
    """What comes, at least until `end`; with 1 byte `at_once`, just until there."""
    pieces, last = [], b""
    patience = time.monotonic() + PATIENCE_S
    while end not in last:
        assert time.monotonic() < patience, f"{end!r} did not come after {last[-200:]!r}"
        piece = connection.recv(at_once)
        assert piece, f"the server closed the connection after {last[-200:]!r}"
        pieces.append(piece)
        last = last[-len(end) :] + piece
    return b"".join(pieces)


def wait(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_page_needs_the_word_of_its_address(server: Server) -> None:
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32}/", server.url)
    word = token(server)
    assert status(ask(server, f"/{word}/")) == 200
    for path in ("/", "/page.js", "//", f"/{word[:-1]}/", f"/{word}x/", f"/{word.upper()}/",
                 f"/x/{word}/", "/events", f"/?{word}", "/%00/", "/\xe9\xff/"):  # fmt: skip
        answer = ask(server, path)
        assert status(answer) in (403, 400), path
        assert word not in answer
        assert "html" not in answer


def test_an_address_without_its_last_slash_leads_to_it(server: Server) -> None:
    """Else what the page loads would be looked for elsewhere."""
    answer = ask(server, f"/{token(server)}")
    assert status(answer) == 302
    assert f"\r\nLocation: /{token(server)}/\r\n" in answer


def test_another_name_of_this_machine_is_refused(server: Server) -> None:
    path = f"/{token(server)}/"
    for host in ("127.0.0.1", "localhost:9", f"localhost:{server.port}"):
        assert status(ask(server, path, host=host)) == 200
    for host in ("attacker.example", f"attacker.example:{server.port}", "", "127.0.0.1.example",
                 "localhost.example:80", "0.0.0.0", "[::1]"):  # fmt: skip
        assert status(ask(server, path, host=host)) == 403, host
    with connect(server) as found:
        found.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nHost: x\r\n\r\n".encode())
        assert status(everything(found)) == 403
    with connect(server) as found:
        found.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        assert status(everything(found)) == 403


def test_it_listens_on_the_loopback_address_only(server: Server) -> None:
    assert server.listener.socket.getsockname()[0] == "127.0.0.1"
    assert server.listener.socket.family == socket.AF_INET


@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_it_is_only_read(server: Server, method: str) -> None:
    answer = ask(server, f"/{token(server)}/", method)
    assert status(answer) == 405
    assert "\r\nAllow: GET\r\n" in answer


def test_no_request_names_a_file(server: Server) -> None:
    for name in ("server.py", "../page.html", "..%2fpage.html", "/etc/passwd", "page.html", "./",
                 "page.js/", "%2e%2e/", "events/", "events/x"):  # fmt: skip
        answer = ask(server, f"/{token(server)}/{name}")
        assert status(answer) == 404, name
        assert answer.endswith("\r\n\r\n404 Not Found\n")


def test_nonsense_is_answered_without_a_word_of_it(server: Server) -> None:
    for request in (
        b"\r\n\r\n",
        b"GET  HTTP/1.1\r\n\r\n",
        b"<script>\r\n\r\n",
        b"GET <script> HTTP/9.9\r\n\r\n",
        b"<b> / HTTP/1.1\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 300 + b"\r\n",
        bytes(range(256)) + b"\r\n\r\n",
    ):
        with connect(server) as found:
            found.sendall(request)
            found.shutdown(socket.SHUT_WR)
            try:
                answer = everything(found)
            except ConnectionResetError:
                # It did not read all of the request.
                continue
            assert "<" not in answer
            assert answer == "" or not re.match(r"HTTP/1.\d 2", answer)
    assert status(ask(server, f"/{token(server)}/")) == 200


def test_what_a_page_may_do_is_little(server: Server) -> None:
    for name in ("", "page.js", "page.css", "vega.js", "nothing"):
        head = ask(server, f"/{token(server)}/{name}").partition("\r\n\r\n")[0]
        policy = re.search(r"Content-Security-Policy: (.*)", head)
        assert policy is not None
        rules = dict(rule.split(" ", 1) for rule in policy[1].strip().split("; "))
        assert rules["default-src"] == "'none'"
        assert rules["script-src"] == rules["connect-src"] == rules["style-src"] == "'self'"
        assert rules["frame-ancestors"] == "'none'"
        assert "X-Content-Type-Options: nosniff" in head
        assert "Referrer-Policy: no-referrer" in head
        assert "Cache-Control: no-store" in head
        assert "Access-Control" not in head
        assert "Python" not in head
    # Nothing in the page needs more than that.
    body = ask(server, f"/{token(server)}/").partition("\r\n\r\n")[2]
    assert all(re.search(r"src=\"[a-z]+\.js\"", script) for script in body.split("<script")[1:])
    assert "style=" not in body and "http" not in body


def test_a_reader_gets_what_is_published(server: Server, hub: Hub) -> None:
    hub.publish(b'{"n":1}')
    with events(server) as found:
        assert b'id: 1\nevent: frame\ndata: {"n":1}\n\n' in until(found, b'{"n":1}\n\n')
        hub.publish(b'{"n":2}')
        assert b'id: 2\nevent: frame\ndata: {"n":2}\n\n' in until(found, b'{"n":2}\n\n')
        until(found, b"event: alive\ndata:\n\n")


@pytest.mark.full("waits 2 s")
def test_readers_say_what_they_want(server: Server, hub: Hub) -> None:
    changes = []
    hub.changes = lambda: changes.append(hub.wanted())
    assert hub.wanted() == ("quanta",) and not hub.is_watched()
    with events(server, "?analysis=runq&analysis=wakers"):
        wait(lambda: hub.wanted() == ("runq", "wakers"))
        with events(server):
            wait(lambda: hub.wanted() == ("runq", "wakers", "quanta"))
    # Nobody has told the server that they are gone: it sees that when it writes.
    wait(lambda: not hub.is_watched())
    assert hub.wanted() == ("quanta",)
    assert changes[0] == ("runq", "wakers")
    many = "&".join(f"analysis=a{n}" for n in range(1000))
    assert status(ask(server, f"/{token(server)}/events?{many}")) == 400


def test_a_slow_reader_holds_nobody_and_gets_the_newest(
    server: Server, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving.Handler, "timeout", PATIENCE_S)
    with events(server) as slow, events(server) as quick:
        wait(lambda: len(hub.readers) == 2)
        for number in range(1, 6):
            hub.publish(b"x" * BIG + b"%d" % number)
            # The slow one has not read a word of the first frame.
            until(quick, b"x%d\n\n" % number)
        got = until(slow, b"x5\n\n")
    # What came in between was not kept for it.
    assert [int(n) for n in re.findall(rb"id: (\d+)\n", got)] == [1, 5]


def test_one_who_does_not_read_is_left(
    server: Server, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving.Handler, "timeout", 0.2)
    with events(server):
        wait(hub.is_watched)
        hub.publish(b"x" * BIG)
        wait(lambda: not hub.is_watched())
    assert status(ask(server, f"/{token(server)}/")) == 200


def test_one_who_says_nothing_is_left(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving.Handler, "timeout", 0.2)
    with connect(server) as silent:
        assert silent.recv(1) == b""


@pytest.mark.full("waits 2 s")
def test_too_many_connections_are_closed_at_once(server: Server, hub: Hub) -> None:
    readers = [events(server) for _ in range(CONNECTIONS_MAX)]
    try:
        wait(lambda: len(hub.readers) == CONNECTIONS_MAX)
        with connect(server) as late, contextlib.suppress(ConnectionResetError):
            assert late.recv(1) == b""
        hub.publish(b"{}")
        for reader in readers:
            until(reader, b"event: frame\ndata: {}\n\n")
    finally:
        for reader in readers:
            reader.close()
    wait(lambda: not hub.is_watched())
    assert status(ask(server, f"/{token(server)}/")) == 200


@pytest.mark.full("waits 6 s for connections that say nothing")
def test_strangers_do_not_keep_others_out(server: Server, hub: Hub) -> None:
    """Any user of the machine can connect, and say nothing."""
    with events(server) as reader, contextlib.ExitStack() as stack:
        wait(hub.is_watched)
        strangers = [stack.enter_context(connect(server)) for _ in range(CONNECTIONS_MAX + 8)]
        assert status(ask(server, f"/{token(server)}/")) == 200
        # The oldest had to go, but not who knows the word.
        assert strangers[0].recv(1) == b""
        hub.publish(b"{}")
        until(reader, b"event: frame\ndata: {}\n\n")
        assert len(server.listener.known) <= CONNECTIONS_MAX


def test_all_are_told_when_it_ends(hub: Hub) -> None:
    before = threading.active_count()
    with pytest.raises(Failure), Server(hub) as server:
        reader = events(server)
        wait(hub.is_watched)
        raise Failure("the recorder has ended", help="look at it")
    with reader:
        said = everything(reader)
    data = re.search(r"event: end\ndata: (.*)\n\n", said)
    assert data is not None
    assert json.loads(data[1]) == {"reason": "the recorder has ended\n  help: look at it"}
    with pytest.raises(ConnectionRefusedError):
        connect(server)
    wait(lambda: threading.active_count() <= before)


def test_a_port_that_is_taken_or_is_none(server: Server) -> None:
    with pytest.raises(Failure, match=f"^--port {server.port}: another program listens there"):
        Server(Hub(), server.port)
    for port in (-1, 65536):
        with pytest.raises(Failure, match=f"^--port {port}: a port is a number from 0 to 65535$"):
            Server(Hub(), port)
