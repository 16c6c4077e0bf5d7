# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Fields `as endpoint`: what is logged is what the program's own getsockname() and getpeername()
say, and what it passes to connect() and bind().
"""

import json
import sys
from pathlib import Path

import pytest

SCHEMA = """
include "files"

event HELD {
    u32 fd
    u8  source[20] as endpoint
    u8  destination[20] as endpoint
}
event CALLED {
    char call
    long unread as errno
    u8   place[20] as endpoint
}

probe return syscall getsockname(long result, int fd) {
    struct sock *sk = klogger_file_sock(file_of_fd(fd));
    klogger_endpoint source, destination;

    if (!sk)
        return;
    klogger_sock_source(source, sk);
    klogger_sock_destination(destination, sk);
    klogger(HELD, fd, source, destination);
}
probe return syscall connect(long result, int fd, struct sockaddr *address) {
    klogger_endpoint place;
    long unread = klogger_user_endpoint(place, address);

    klogger(CALLED, 'c', unread, place);
}
probe return syscall bind(long result, int fd, struct sockaddr *address) {
    klogger_endpoint place;
    long unread = klogger_user_endpoint(place, address);

    klogger(CALLED, 'b', unread, place);
}
"""
PROGRAM = r"""
import ctypes, json, socket
libc = ctypes.CDLL(None)
def show(family, name):
    if family == socket.AF_UNIX:
        return "unix"
    host, port = name[:2]
    return f"[{host}]:{port}" if family == socket.AF_INET6 else f"{host}:{port}"
NOBODY = {socket.AF_INET: "0.0.0.0:0", socket.AF_INET6: "[::]:0"}
held, called, keep = {}, [], []
def hold(s):
    keep.append(s)
    try:
        peer = show(s.family, s.getpeername())
    except OSError:
        peer = NOBODY[s.family]
    held[s.fileno()] = [show(s.family, s.getsockname()), peer]
for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    server = socket.socket(family)
    # As it was passed: the port was not chosen yet.
    called.append(["b", 0, show(family, (host, 0))])
    server.bind((host, 0))
    server.listen()
    client = socket.socket(family)
    called.append(["c", 0, show(family, server.getsockname())])
    client.connect(server.getsockname())
    accepted, _ = server.accept()
    udp = socket.socket(family, socket.SOCK_DGRAM)
    called.append(["c", 0, show(family, (host, 4711))])
    udp.connect((host, 4711))
    for s in (server, client, accepted, udp):
        hold(s)
# To all addresses, over IPv6 to an address of IPv4, and a pair without any.
every = socket.socket(socket.AF_INET6)
every.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
called.append(["b", 0, "[::]:0"])
every.bind(("::", 0))
every.listen()
port = every.getsockname()[1]
mapped = socket.socket(socket.AF_INET6)
called.append(["c", 0, f"[::ffff:127.0.0.1]:{port}"])
mapped.connect(("::ffff:127.0.0.1", port))
for s in (every, mapped, *socket.socketpair()):
    hold(s)
# Without a family, of one that is not known here, and where nothing can be read.
for place, unread, text in (
    (bytes(16), 0, "-"), (b"\x11" + bytes(15), 0, "family:17"), (8, -14, "-")
):
    called.append(["c", unread, text])
    libc.connect(mapped.fileno(), ctypes.c_void_p(place) if place == 8 else place, 16)
print(json.dumps({"held": held, "called": called}))
"""


def rows(recorder, path, query):
    done = recorder.command("sql", path, "--format", "json", query)
    assert done.code == 0, done.err
    return json.loads(done.out)


def has_ipv6() -> bool:
    """Whether the loopback device has an address of IPv6."""
    addresses = Path("/proc/net/if_inet6")
    return addresses.exists() and addresses.read_text().startswith("0" * 31 + "1 ")


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_endpoints_are_those_of_the_program(recorder, clean_kernel):
    schema = recorder.dir / "endpoints.klogger"
    schema.write_text(SCHEMA)
    log, report = recorder.log("-s", schema, "--", sys.executable, "-c", PROGRAM)
    assert sum(log.lost(name) for name in log.events()) == 0
    held = rows(
        recorder,
        log.path,
        "SELECT fd, endpoint(source) AS source, endpoint(destination) AS destination FROM HELD"
        " ORDER BY time",
    )
    # The first time that the program asked: when it ends, Python asks again.
    found = {str(row["fd"]): [row["source"], row["destination"]] for row in reversed(held)}
    assert found == report["held"] and len(found) == 12
    called = rows(
        recorder,
        log.path,
        "SELECT chr(call) AS call, unread, endpoint(place) AS place FROM CALLED ORDER BY time",
    )
    # Before that, libc may have looked for a service of names.
    assert [list(row.values()) for row in called][-len(report["called"]) :] == report["called"]
    text = recorder.command("cat", log.path, "--event", "HELD").out
    for source, destination in report["held"].values():
        assert f"source={source} destination={destination}" in text
