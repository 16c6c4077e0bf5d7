# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`watcher.py TIMES`: a process waits for an epoll, and another one writes to what that watches, to
one after another. Prints what /proc says of the epoll.
"""

import json
import os
import select
import socket
import sys
import time

TIMES = int(sys.argv[1])


def named(name):
    with open("/proc/self/comm", "w") as file:
        file.write(name)


def writer(orders, writes):
    """Writes to what it is told to, until it is told 0."""
    named("writer")
    while (which := os.read(orders, 1)) != b"\0":
        time.sleep(0.003)
        writes[which[0]]()
    os._exit(0)


def rounds(epoll, orders, watched, reads):
    for fd in watched:
        for _ in range(TIMES):
            os.write(orders, bytes([fd]))
            assert epoll.poll() == [(fd, select.EPOLLIN)]
            reads.get(fd, lambda fd=fd: os.read(fd, 1))()


def listed(epoll):
    """Descriptor and inode of each that it watches."""
    with open(f"/proc/self/fdinfo/{epoll.fileno()}") as file:
        lines = [line.split() for line in file if line.startswith("tfd:")]
    inodes = [next(word for word in line if word.startswith("ino:")) for line in lines]
    return [[int(line[1]), int(ino[4:], 16)] for line, ino in zip(lines, inodes, strict=True)]


def main():
    pipe_out, pipe_in = os.pipe()
    later_out, later_in = os.pipe()
    event = os.eventfd(0)
    listens = socket.socket()
    listens.bind(("127.0.0.1", 0))
    listens.listen()
    far = socket.create_connection(listens.getsockname())
    near, _ = listens.accept()
    left, right = socket.socketpair()
    orders_out, orders_in = os.pipe()
    child = os.fork()
    if not child:
        writer(orders_out, {
            pipe_out: lambda: os.write(pipe_in, b"x"), event: lambda: os.eventfd_write(event, 1),
            near.fileno(): lambda: far.send(b"x"), left.fileno(): lambda: right.send(b"x"),
            later_out: lambda: os.write(later_in, b"x"),
        })  # fmt: skip
    named("watcher")
    epoll = select.epoll()
    reads = {event: lambda: os.eventfd_read(event)}
    first = [pipe_out, event, near.fileno(), left.fileno()]
    for fd in first:
        epoll.register(fd, select.EPOLLIN)
    lists = [listed(epoll)]
    rounds(epoll, orders_in, first, reads)
    # This changes nothing of what is watched, ...
    epoll.modify(event, select.EPOLLIN)
    os.write(orders_in, bytes([event]))
    epoll.poll()
    os.eventfd_read(event)
    # ... and this does.
    epoll.register(later_out, select.EPOLLIN)
    lists.append(listed(epoll))
    rounds(epoll, orders_in, [later_out], reads)
    os.write(orders_in, b"\0")
    place = "{}:{}".format(*near.getpeername())
    print(json.dumps({"pid": os.getpid(), "lists": lists, "socket": place}))
    os.waitpid(child, 0)
    sys.exit(7)


main()
