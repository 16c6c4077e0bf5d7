# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Bodies that the kernel's verifier refuses: which line, which rule, and the remedy, before a
recording (`check --load`) and at its start.
"""

import json
import re
import shutil
import sys

import pytest
from conftest import as_nobody
from oracles import Log

SWITCH = (
    "probe tracepoint sched_switch(bool preempt, struct task_struct *prev,\n"
    "                              struct task_struct *next) {\n"
)
HEAD = "schema refused\nevent A { ulong n }\n"
# name: (the text after HEAD, the refused line, what it does, the remedy). Clang may have moved the
# refused instruction to a line nearby, so some have several.
BODIES = {
    "loop": (
        SWITCH + "    unsigned long n = 0;\n"
        "    for (int i = 0; i < 10000000; i++)\n"
        "        n += n * i + klogger_cpu();\n"
        "    klogger(A, n);\n}\n",
        (6, 7),
        "the verifier cannot see that it ends soon: a loop without a small bound, or too many"
        " paths",
        "bound the loop by a constant, such as 'for (int i = 0; i < 32; i++)', and leave it with"
        " break; log fewer events in it",
    ),
    "index": (
        "code { static unsigned long table[16]; }\n" + SWITCH + "    table[prev->pid]++;\n"
        "    klogger(A, table[3]);\n}\n",
        (6,),
        "an index is not known to be within the array",
        "bound it before: 'table[i & 15]' with an array of 16, or 'if (i >= 16) return;', where i"
        " is unsigned",
    ),
    "element": (
        SWITCH + "    klogger(A, prev->comm[next->pid & 15]);\n}\n",
        (5,),
        "it reads an element of a kernel array whose index is not a constant",
        "read it with klogger_read(&value, &p->array[i], sizeof(value))",
    ),
    "number": (
        "probe tracepoint sys_enter(struct pt_regs *regs, long id) {\n"
        "    klogger(A, *(const unsigned long *)id);\n}\n",
        (4,),
        "it reads at an address that is only a number, or of a pointer that the verifier does not"
        " know",
        "read it with klogger_read(&value, address, sizeof(value))",
    ),
    "size": (
        SWITCH + "    unsigned char bytes[16];\n"
        "    klogger_read(bytes, prev, prev->pid);\n"
        "    klogger(A, bytes[0]);\n}\n",
        (6,),
        "the size that it reads or copies is not known to fit",
        "use a constant, such as sizeof(value), or bound the size before: 'if (n > sizeof(bytes))"
        " return;', where n is unsigned",
    ),
    "write": (
        SWITCH + "    prev->pid = 7;\n    klogger(A, 1);\n}\n",
        (5,),
        "it writes to memory of the kernel",
        "a probe may write only to its own variables, and those in 'code'",
    ),
    "beyond": (
        SWITCH + "    klogger(A, ((unsigned long *)prev)[100000]);\n}\n",
        (5,),
        "it reads beyond the end of a structure of the kernel",
        "check the type of the pointer; klogger_read() reads at any address",
    ),
    "helper": (
        SWITCH + "    unsigned long long value = 0;\n"
        "    klogger(A, bpf_seq_write(prev, &value, 8));\n}\n",
        (6,),
        "it calls a function of the kernel that programs of this kind cannot call",
        "see the functions that a body can call in docs/language/probe.md",
    ),
}


@pytest.fixture
def written(recorder):
    def write(name):
        file = recorder.dir / f"{name}.klogger"
        file.write_text(HEAD + BODIES[name][0])
        return file

    return write


@pytest.mark.full("others of this file are in the gate")
@pytest.mark.parametrize("name", BODIES)
def test_check_finds_it(recorder, written, clean_kernel, name):
    text, lines, what, remedy = BODIES[name]
    file, said = written(name), recorder.dir / "said"
    place = re.search(r"probe (tracepoint \w+)", text)[1]
    done = recorder.command(
        "check", "--load", "--verifier-log", said, "--format", "json", file, timeout=300
    )
    ((found,),) = [checked["diagnostics"] for checked in json.loads(done.out)]
    assert done.code == 2
    assert (found["message"], found["help"]) == (f"the kernel refuses {place}: {what}", remedy)
    assert found["line"] in lines
    # Its label has the verifier's own words, and the file all of them.
    assert f"{found['label']}\nprocessed " in said.read_text()
    # Without --load, the compiler accepts it.
    assert recorder.command("check", file).code == 0


def test_a_recording_says_the_same(recorder, written, clean_kernel):
    file = written("size")
    done, _ = recorder.run("-s", file, "--", "true")
    _, (line,), what, remedy = BODIES["size"]
    first, *others = done.err.splitlines()
    assert done.code == 2
    assert first == f"klogger: {file}:{line}: the kernel refuses tracepoint sched_switch: {what}"
    assert others[0] == f"  help: {remedy}"
    assert others[1].startswith("the kernel says: R2 ")
    assert others[2] == (
        f"'klogger check --load {file}' shows the line; with --verifier-log FILE all that the"
        " kernel says"
    )


@pytest.mark.full("others of this file are in the gate")
def test_each_refused_probe_is_found(recorder, clean_kernel):
    file = recorder.dir / "two.klogger"
    second = BODIES["number"][0]
    file.write_text(HEAD + BODIES["write"][0] + second)
    done = recorder.command("check", "--load", "--format", "json", file)
    (checked,) = json.loads(done.out)
    assert [d["line"] for d in checked["diagnostics"]] == [5, 9]


def test_a_stack_that_is_too_small(recorder):
    """The compiler finds this one, also without --load."""
    file = recorder.dir / "stack.klogger"
    file.write_text(
        HEAD + SWITCH + "    unsigned long values[80];\n"
        "    klogger_read(values, prev, sizeof(values));\n"
        "    klogger(A, values[3] + values[79]);\n}\n"
    )
    done = recorder.command("check", "--format", "json", file)
    ((found,),) = [checked["diagnostics"] for checked in json.loads(done.out)]
    assert (done.code, found["line"]) == (2, 3)
    assert found["message"] == (
        "the local variables of a probe take more than the 512 bytes of a BPF stack"
    )


def test_what_is_accepted_is_loaded_and_nothing_stays(recorder, clean_kernel):
    done = recorder.command("check", "--load", "scheduler")
    assert (done.code, done.err) == (0, "")
    assert re.search(r"probes, .*loaded\n$", done.out)


@pytest.mark.full("takes more than 3 s")
def test_loading_needs_root(public_klogger, written):
    file = shutil.copy(written("size"), public_klogger.parent)
    done = as_nobody(public_klogger, "check", "--load", file)
    assert (done.code, done.out, done.err) == (
        2,
        "",
        "klogger: --load loads programs as a recording does, and recording needs CAP_PERFMON and"
        " CAP_BPF, which this process does not have\n"
        "  help: run klogger as root: sudo klogger check --load ...\n",
    )


CURRENT = """schema running
event A { int tid as thread  int ppid  string[16] comm }
event B { int tid as thread }
probe tracepoint task_prctl_unknown(int option) {
    if (option == 1000)
        klogger(A, klogger_current()->pid, klogger_current()->real_parent->tgid,
                klogger_current()->comm);
}
probe trace_event syscalls:sys_enter_prctl(int option) {
    if (option == 1000)
        klogger(B, klogger_current()->pid);
}
"""
ASKING = """
import ctypes, os
ctypes.CDLL(None).prctl(1000, 0, 0, 0, 0)
print(os.getpid(), os.getppid())
"""


def test_the_running_thread(recorder, clean_kernel):
    """In a probe of each kind."""
    file = recorder.dir / "current.klogger"
    file.write_text(CURRENT)
    done, path = recorder.run("-s", file, "--", sys.executable, "-c", ASKING)
    assert done.code == 0, done.err
    pid, ppid = map(int, done.out.split())
    log = Log(recorder.klogger, path)
    (comm,) = log.one("SELECT list(DISTINCT comm) FROM a")
    assert comm.startswith("python")
    assert log.rows("SELECT tid, ppid FROM a") == [(pid, ppid)]
    assert log.rows("SELECT tid FROM b") == [(pid,)]
