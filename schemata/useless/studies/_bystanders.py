# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Ordinary programs, of which nobody has planted anything: those of a list that this machine has.
Prints a line of JSON for each: its name, and the pid of the process that it begins with.

    _bystanders.py FOLDER
"""

import json
import os
import shutil
import subprocess
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOM = Path(sys.argv[1])
HELLO = '#include <stdio.h>\nint main(void) { return puts("hello") < 0; }\n'
SERVE = "import runpy, sys; sys.argv[1:] = ['serve']; runpy.run_path({file!r})"
LOAD = """
import sqlite3
base = sqlite3.connect("base.db")
base.execute("CREATE TABLE t (a, b)")
base.executemany("INSERT INTO t VALUES (?, ?)", ((n, n * n) for n in range(20000)))
base.commit()
print(base.execute("SELECT sum(b) FROM t").fetchone())
"""
# Name, and command in the folder.
COMMANDS = [
    ("sort", ["sort", "numbers"]),
    ("grep -r", ["grep", "-r", "17", "tree"]),
    ("find", ["find", "tree", "-name", "*7"]),
    ("tar", ["tar", "cf", "tree.tar", "tree"]),
    ("unpacking", ["tar", "xf", "tree.tar", "-C", "unpacked"]),
    ("gzip", ["gzip", "-k", "numbers"]),
    ("sed", ["sed", "s/1/2/", "numbers"]),
    ("awk", ["awk", "{ s += $1 } END { print s }", "numbers"]),
    ("cp -r", ["cp", "-r", "tree", "copy"]),
    ("du", ["du", "-s", "tree"]),
    ("diff -r", ["diff", "-r", "tree", "copy"]),
    ("sha256sum", ["sha256sum", "numbers"]),
    ("ls -lR", ["ls", "-lR", "tree"]),
    ("editor", ["vim", "-N", "-u", "NONE", "-es", "-c", "q", "numbers"]),
    ("make", ["make", "-s"]),
    ("git status", ["git", "-C", "repository", "status", "--short"]),
    ("git log", ["git", "-C", "repository", "log", "--oneline"]),
    ("database", ["python3", "-I", "-c", LOAD]),
    ("web server", ["python3", "-I", "-c", SERVE.format(file=__file__)]),
    ("python", ["python3", "-I", "-c", "pass"]),
    ("dpkg", ["dpkg", "-l"]),
    ("compiler", ["cc", "-O1", "-o", "hello", "hello.c"]),
]


class Page(BaseHTTPRequestHandler):
    """What it serves is in memory."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *_):
        pass


def serve():
    """A web server under load, for a moment."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for _ in range(50):
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/") as answer:
            answer.read()
    server.shutdown()


def prepare(environment):
    """In processes of their own, before anything is shown."""
    (ROOM / "numbers").write_text("".join(f"{n * 7919 % 10007}\n" for n in range(10007)))
    (ROOM / "hello.c").write_text(HELLO)
    (ROOM / "Makefile").write_text("all: numbers hello.c\n")
    (ROOM / "unpacked").mkdir()
    for number in range(200):
        # One of the folders is large enough for D3.
        folder = ROOM / "tree" / f"part{0 if number < 70 else number % 7}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"file{number}").write_text(f"{number}\n" * 50)
    if shutil.which("git"):
        shutil.copytree(ROOM / "tree", ROOM / "repository")
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "all"]):
            command = ["git", "-C", "repository", *words]
            subprocess.run(command, cwd=ROOM, env=environment, check=True)


def main():
    environment = {**os.environ, "HOME": str(ROOM), "LC_ALL": "C"}
    environment |= {"GIT_CONFIG_NOSYSTEM": "1", "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}
    print(json.dumps({"runner": os.getpid()}), flush=True)
    prepare(environment)
    for name, command in COMMANDS:
        program = shutil.which(command[0], path=environment["PATH"])
        if program is None:
            print(json.dumps({"bystander": name, "skipped": f"no {command[0]}"}), flush=True)
            continue
        with subprocess.Popen(
            [program, *command[1:]], cwd=ROOM, env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        ) as child:  # fmt: skip
            code = child.wait()
        print(json.dumps({"bystander": name, "pid": child.pid, "code": code}), flush=True)


if sys.argv[1:] == ["serve"]:
    serve()
else:
    main()
