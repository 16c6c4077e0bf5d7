# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The command has what it has without klogger: the treatment of signals, descriptors, limits, and
the rest of what a process inherits; and klogger ends when it ends, whatever it has started.
"""

import json
import os
import resource
import signal
import subprocess
import sys

import pytest
from conftest import wait_for

PATIENCE = 120
# `klogger` is left out, and so are variables that are its own. Python changes signals when it
# starts, so a program that changes nothing shows them.
SHOW = r"""
#define _GNU_SOURCE
#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
extern char **environ;
int main(void)
{
    sigset_t blocked;
    struct sigaction action;
    struct rlimit limit;
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    for (int s = 1; s < 65; s++)
        if (!sigaction(s, NULL, &action))
            printf("signal %d %d %d\n", s, action.sa_handler == SIG_IGN, sigismember(&blocked, s));
    for (int r = 0; r < RLIM_NLIMITS; r++)
        if (!getrlimit(r, &limit))
            printf("limit %d %lu %lu\n", r, limit.rlim_cur, limit.rlim_max);
    for (int fd = 0; fd < 200; fd++) {
        struct stat about;
        if (!fstat(fd, &about))
            printf("descriptor %d %lu\n", fd, (unsigned long)about.st_ino);
    }
    printf("priority %d policy %d\n", getpriority(PRIO_PROCESS, 0), sched_getscheduler(0));
    printf("umask %o\n", umask(0));
    printf("group %d session %d\n", getpgrp() == getpid(), getsid(0) == getpid());
    printf("in %s\n", getcwd(NULL, 0));
    for (char **v = environ; *v; v++)
        if (strncmp(*v, "KLOGGER", 7))
            printf("variable %s\n", *v);
}
"""


@pytest.fixture
def show(recorder):
    source, program = recorder.dir / "show.c", recorder.dir / "show"
    source.write_text(SHOW)
    subprocess.run(["cc", "-O1", "-w", "-o", program, source], check=True)
    return program


def launchers(recorder):
    klogger = str(recorder.klogger)
    return {
        "record": [klogger, "record", "-q", "-s", "lifecycle", "-o", "a.klog", "--"],
        "trace": [klogger, "trace", "-s", "lifecycle", "-o", os.devnull, "--"],
        "watch": [sys.executable, "-m", "klogger_lab.cli.watch", "--"],
        "why": [sys.executable, "-m", "klogger_lab.cli.why", "-o", recorder.dir / "why.klog", "--"],
        "user": [klogger, "record", "-q", "--engine", "user", "-o", "b.klog", "--"],
    }


def supervised():
    """What a supervisor may have set. SIGUSR2 and SIGHUP stand for those that klogger handles."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGUSR2, signal.SIGCHLD):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    os.umask(0o027)
    resource.setrlimit(resource.RLIMIT_NOFILE, (500, 600))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def by_a_shell():
    """Python has them ignored."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)


def shown(recorder, words, prepare) -> list[str]:
    """What is shown by a program that has one more descriptor."""
    one, other = os.pipe()
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE,
            check=False, cwd=recorder.dir, pass_fds=[one], restore_signals=False,
            env={**os.environ, "KLOGGER": str(recorder.klogger)}, preexec_fn=prepare,
        )  # fmt: skip
    finally:
        os.close(one)
        os.close(other)
    assert done.returncode == 0, done.stderr
    assert f"descriptor {one} " in done.stdout
    # The pipes of standard output and error are others each time, and so is that of the one more.
    pipes = {"descriptor 1 ", "descriptor 2 ", f"descriptor {one} "}
    found = done.stdout.splitlines()
    lines = (next((p for p in pipes if line.startswith(p)), line) for line in found)
    return sorted(line for line in lines if not line.startswith("variable _="))


@pytest.mark.parametrize("how", ["record", "trace", "watch", "why", "user"])
@pytest.mark.parametrize("prepare", [by_a_shell, supervised], ids=["shell", "supervisor"])
def test_what_the_command_inherits(recorder, show, how, prepare):
    words = launchers(recorder)[how]
    # A program that is not started by `klogger` cannot know what was ignored before Python.
    also = by_a_shell if prepare is supervised and how in ("watch", "why") else None

    def both():
        prepare()
        if also:
            also()

    assert shown(recorder, [*words, show], both) == shown(recorder, [show], both)


@pytest.mark.parametrize("how", ["record", "watch", "why"])
def test_the_exit_code_is_known_while_the_end_of_children_is_ignored(recorder, how):
    words = [*launchers(recorder)[how], "sh", "-c", "exit 7"]
    done = subprocess.run(
        words, cwd=recorder.dir, check=False, timeout=PATIENCE, capture_output=True,
        env={**os.environ, "KLOGGER": str(recorder.klogger)},
        preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
    )  # fmt: skip
    assert done.returncode == 7


@pytest.mark.parametrize("ignored", [0, 1])
def test_signals_that_python_ignores_are_the_commands(recorder, show, monkeypatch, ignored):
    """`klogger` tells the program of `klogger watch` which they were."""
    if ignored:
        monkeypatch.setenv("KLOGGER_IGNORED", str(int(signal.SIGPIPE)))
    lines = shown(recorder, [*launchers(recorder)["watch"], show], by_a_shell)
    assert f"signal {int(signal.SIGPIPE)} {ignored} 0" in lines


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP, None], ids=["TERM", "HUP", "find"])
def test_watch_does_not_wait_for_what_the_command_leaves(recorder, how):
    """A descendant runs on, with all descriptors that were passed on to it."""
    report, left = recorder.dir / "found.json", recorder.dir / "left"
    crash = 'sh -c "kill -SEGV \\$\\$";' if how is None else ""
    script = f"sleep {10 * PATIENCE} & echo $! >{left}.new; mv {left}.new {left}; {crash} wait"
    options = ["--report", str(report), *(["--stop-on-find"] if how is None else [])]
    words = [sys.executable, "-m", "klogger_lab.cli.watch", *options, "--", "sh", "-c", script]
    process = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "KLOGGER": str(recorder.klogger)}, start_new_session=True,
        cwd=recorder.dir,
    )  # fmt: skip
    try:
        if how is not None:
            wait_for(left.exists, process, PATIENCE)
            process.send_signal(how)
        code = process.wait(PATIENCE)
        # The recorder ends the command by SIGTERM.
        assert code == (3 if how is None else 128 + signal.SIGTERM)
        assert os.path.exists(f"/proc/{left.read_text().strip()}")
    finally:
        if process.poll() is None:
            process.kill()
        if left.exists():
            os.kill(int(left.read_text()), signal.SIGKILL)


def test_output_by_descriptor_is_not_the_commands(recorder):
    """Whoever reads a pipe that klogger writes sees its end when klogger ends."""
    one, other = os.pipe()
    script = f"sleep {10 * PATIENCE} >/dev/null 2>&1 & echo $!"
    words = [str(recorder.klogger), "trace", "--format", "json", "-s", "lifecycle"]
    process = subprocess.Popen(
        [*words, "-o", f"/dev/fd/{other}", "--", "sh", "-c", script],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, pass_fds=[other], text=True,
    )  # fmt: skip
    os.close(other)
    left = int(process.stdout.readline())
    try:
        with os.fdopen(one) as lines:
            # To the end.
            names = {json.loads(line)["event"] for line in lines}
        assert {"RAN", "ENDED"} <= names
        assert process.wait(PATIENCE) == 0
    finally:
        os.kill(left, signal.SIGKILL)
        process.stdout.close()
