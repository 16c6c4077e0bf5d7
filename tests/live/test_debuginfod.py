# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Names by debuginfod: a local server has the debug information of a program without symbols."""

import contextlib
import json
import signal
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from conftest import RENAMES
from oracles import Log

CHAIN = ["innermost", "inlined", "middle", "outer", "main"]
SOURCE = Path(__file__).parent / "chain.c"


class Server(ThreadingHTTPServer):
    """What it has by path, what it was asked for."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        # Until it is set, nothing is answered.
        self.answers = threading.Event()
        self.answers.set()

    scheme = "http"

    @property
    def url(self):
        return f"{self.scheme}://127.0.0.1:{self.server_port}"

    def handle_error(self, *_):
        """Who asked may have refused the certificate."""


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        self.server.asked.append(self.path)
        self.server.answers.wait()
        body = self.server.files.get(self.path)
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Length", str(len(body or b"")))
        # Who asked may have gone.
        with contextlib.suppress(ConnectionError):
            self.end_headers()
            self.wfile.write(body or b"")

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serving(certificate: Path | None = None) -> Iterator[Server]:
    """By http; with a certificate, which has its key beside it, by https."""
    with Server() as server:
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, certificate.with_suffix(".key"))
            server.socket = context.wrap_socket(server.socket, server_side=True)
            server.scheme = "https"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.answers.set()
            server.shutdown()
            thread.join()


@pytest.fixture
def stripped(tmp_path, monkeypatch):
    """A program without symbols, the path under which servers have its debug information, and that.
    The cache is a folder of the test.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    program, debug = tmp_path / "bare", tmp_path / "bare.debug"
    words = ["cc", "-O2", "-g", "-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer"]
    words += ["-fno-optimize-sibling-calls", "-Wl,--build-id=sha1", SOURCE, "-ldl", "-o", program]
    subprocess.run(words, check=True)
    subprocess.run(["objcopy", "--only-keep-debug", program, debug], check=True)
    subprocess.run(["strip", program], check=True)
    notes = subprocess.run(
        ["readelf", "-n", program], capture_output=True, text=True, check=True
    ).stdout
    build_id = notes.split("Build ID: ")[1].split()[0]
    return program, f"/buildid/{build_id}/debuginfo", debug.read_bytes()


def recorded(recorder, program):
    (recorder.dir / "who.klogger").write_text(RENAMES)
    done, out = recorder.run(
        "-q", "-s", recorder.dir / "who.klogger", "--", program, "usual", "chain"
    )
    assert done.code == 0, done.err
    return out


def frames(recorder, path):
    log = Log(recorder.klogger, path)
    (found,) = log.rows(
        "SELECT s.frames FROM RENAMED JOIN stack AS s ON s.id = user_stack WHERE name = 'chain'"
    )
    return found[0][:5]


def told(recorder, path):
    """What the ledger says of code without names."""
    log = Log(recorder.klogger, path)
    return [text for (text,) in log.rows("SELECT text FROM ledger WHERE key = 'code_unnamed'")]


def test_a_server_has_the_names(recorder, stripped, monkeypatch):
    program, path, debug = stripped
    with serving() as server:
        server.files[path] = debug
        # The first one does not have it.
        with serving() as empty:
            monkeypatch.setenv("DEBUGINFOD_URLS", f"{empty.url} {server.url}/")
            out = recorded(recorder, program)
            assert path in empty.asked
        assert frames(recorder, out) == CHAIN
        assert server.asked.count(path) == 1
        # What was sent is there the next time.
        server.asked.clear()
        again = recorded(recorder, program)
        assert frames(recorder, again) == CHAIN
        assert path not in server.asked


@pytest.fixture
def authority(tmp_path):
    """The certificate of an authority of one's own, and one that it has given to a server."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    own, given = tmp_path / "own.pem", tmp_path / "given.pem"
    words = ["openssl", "req", "-x509", *key, "-days", "2"]
    name = ["-subj", "/CN=tests of klogger", "-keyout", own.with_suffix(".key"), "-out", own]
    subprocess.run([*words, *name], check=True, capture_output=True)
    signed = ["-CA", own, "-CAkey", own.with_suffix(".key"), "-subj", "/CN=a server"]
    signed += ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=CA:FALSE"]
    signed += ["-keyout", given.with_suffix(".key"), "-out", given]
    subprocess.run([*words, *signed], check=True, capture_output=True)
    return own, given


def test_a_server_has_a_certificate(recorder, stripped, authority, monkeypatch):
    program, path, debug = stripped
    own, given = authority
    with serving(given) as server:
        server.files[path] = debug
        monkeypatch.setenv("DEBUGINFOD_URLS", server.url)
        # Nobody knows who has given it.
        stranger = recorded(recorder, program)
        assert frames(recorder, stranger)[:2] == ["bare", "bare"]
        (text,) = told(recorder, stranger)
        assert server.url in text and "certificate" in text, text
        assert server.asked == []
        # What is named and cannot be read is not replaced by others.
        monkeypatch.setenv("SSL_CERT_FILE", str(own.with_name("absent")))
        assert len(told(recorder, recorded(recorder, program))) == 1
        monkeypatch.setenv("SSL_CERT_FILE", str(own))
        known = recorded(recorder, program)
        assert path in server.asked
    assert frames(recorder, known) == CHAIN
    assert told(recorder, known) == []


def test_names_are_fetched_later(recorder, stripped, monkeypatch):
    program, path, debug = stripped
    out = recorded(recorder, program)
    assert frames(recorder, out)[:2] == ["bare", "bare"]
    assert told(recorder, out) == []
    with serving() as server:
        server.files[path] = debug
        monkeypatch.setenv("DEBUGINFOD_URLS", server.url)
        # The program itself may be gone.
        program.unlink()
        done = recorder.command("symbolize", out, "--format", "json")
        assert done.code == 0, done.err
    assert frames(recorder, out) == CHAIN
    missing = json.loads(done.out)["missing"]
    assert str(program) not in [file["path"] for file in missing]


def test_servers_that_fail_are_said(recorder, stripped, monkeypatch):
    """The events are there; where names are missing, the ledger says why."""
    program, path, _ = stripped
    with serving() as server:
        server.files[path] = b"no program"
        monkeypatch.setenv("DEBUGINFOD_URLS", server.url)
        out = recorded(recorder, program)
        (text,) = told(recorder, out)
        assert f"{server.url}: it has sent another file than the one that was asked for" in text
    assert frames(recorder, out)[:2] == ["bare", "bare"]
    gone = server.url
    monkeypatch.setenv("DEBUGINFOD_URLS", f"{gone} file:///srv")
    texts = told(recorder, recorded(recorder, program))
    assert len(texts) == 1 and f"{gone}: " in texts[0] and "refused" in texts[0], texts
    monkeypatch.setenv("DEBUGINFOD_URLS", "file:///srv")
    (text,) = told(recorder, recorded(recorder, program))
    assert "file:///srv: only servers of http and https are asked" in text


def test_a_signal_ends_the_asking_and_not_the_log(recorder, stripped, monkeypatch):
    """Of a server that never answers. What it is asked for is told, without the password."""
    program, path, _ = stripped
    (recorder.dir / "who.klogger").write_text(RENAMES)
    with serving() as server:
        server.answers.clear()
        monkeypatch.setenv("DEBUGINFOD_URLS", server.url.replace("//", "//me:secret@"))
        out = recorder.path()
        words = ["-s", recorder.dir / "who.klogger", "--", program, "usual", "chain"]
        process = recorder.start("-q", *words, out=out)
        said = process.stderr.readline()
        assert f"asking {server.url} for debug information" in said
        assert "DEBUGINFOD_URLS" in said and "secret" not in said
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=60)
        assert path in server.asked and not server.answers.is_set()
    assert process.returncode == 0, rest
    assert frames(recorder, out)[:2] == ["bare", "bare"]
    (text,) = told(recorder, out)
    assert f"{server.url}: asking it was interrupted" in text
    info = json.loads(recorder.command("info", out, "--format", "json").out)
    assert {entry["key"] for entry in info["ledger"]} == {"code_unnamed"}
