# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Places where a probe would change what a program does, or would not be there: they are refused,
or probed in another way. The programs count themselves how often they were wrong.
"""

import ctypes
import errno
import json
import platform
import shutil
import subprocess

import pytest
from conftest import refused_place
from oracles import Log

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="instructions of x86")

# Each function keeps values below its stack pointer, up to the instruction that is probed.
LEAF = r"""
#include <stdio.h>
#define F(name, code) \
    __asm__(".globl " name "\n.type " name ",@function\n" name ": mov %rdi, -8(%rsp)\n" \
            "mov %rdi, -16(%rsp)\n mov %rdi, -24(%rsp)\n mov %rdi, -32(%rsp)\n" code "\n" \
            "mov -8(%rsp), %rax\n add -16(%rsp), %rax\n add -24(%rsp), %rax\n" \
            "add -32(%rsp), %rax\n ret\n.size " name ", . - " name)
F("five", ".byte 0x0f, 0x1f, 0x44, 0, 0");
F("sized", ".byte 0x66, 0x0f, 0x1f, 0x40, 0");
F("four", ".byte 0x0f, 0x1f, 0x40, 0");
F("segment", ".byte 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0");
F("locked", "lock incq -8(%rsp)\n lock decq -8(%rsp)");
F("calls", "mov $39, %eax\n syscall");
__asm__(".globl entry\n.type entry,@function\nentry: endbr64\n"
        "inner: .byte 0x0f, 0x1f, 0x44, 0, 0\n lea (,%rdi,4), %rax\n ret\n.size entry, . - entry");
__asm__(".pushsection .note.stapsdt, \"\", \"note\"\n .balign 4\n .long 8, 2f - 1f, 3\n"
        ".asciz \"stapsdt\"\n 1: .quad five + 20, 0, 0\n .asciz \"own\", \"amid\", \"\"\n"
        "2: .balign 4\n .long 8, 4f - 3f, 3\n .asciz \"stapsdt\"\n 3: .quad inner, 0, 0\n"
        ".asciz \"own\", \"begun\", \"\"\n 4: .balign 4\n .popsection");
long five(long), sized(long), four(long), segment(long), locked(long), calls(long), entry(long);
int main(void)
{
    long wrong = 0;
    for (long n = 0; n < 1009; n++)
        wrong += (five(n) != 4 * n) + (sized(n) != 4 * n) + (four(n) != 4 * n)
               + (segment(n) != 4 * n) + (locked(n) != 4 * n) + (calls(n) != 4 * n)
               + (entry(n) != 4 * n);
    printf("%ld\n", wrong);
}
"""
FIRST = "+0x14"
THROWS = r"""
#include <cstdio>
#include <stdexcept>
extern "C" __attribute__((noinline)) int inner(int n)
{
    if (n % 3 == 0)
        throw std::runtime_error("a third");
    return n;
}
extern "C" __attribute__((noinline)) int outer(int n) { return inner(n) + 1; }
extern "C" __attribute__((noinline)) int passes_on(int n) { return outer(n); }
int main()
{
    int caught = 0, sum = 0;
    for (int n = 0; n < 307; n++)
        try {
            sum += passes_on(n);
        } catch (std::exception &) {
            caught++;
        }
    std::printf("%d %d\n", caught, sum);
}
"""
# `outer` is called with stacks of growing depth, which Go moves.
GO = """
package main
import "fmt"
//go:noinline
func grow(n int) int {
    var a [256]byte
    a[n%256] = 1
    if n == 0 { return 0 }
    return grow(n-1) + int(a[n%256])
}
//go:noinline
func outer(n int) int { return grow(n) + 7 }
func main() {
    sum := make(chan int)
    for i := 0; i < 53; i++ { go func(n int) { sum <- outer(n * 10) }(i) }
    all := 0
    for i := 0; i < 53; i++ { all += <-sum }
    fmt.Println("ok", all)
}
"""


def optimises() -> bool:
    """Whether the kernel replaces no-ops by calls: it has the system call for this."""
    libc = ctypes.CDLL(None, use_errno=True)
    return libc.syscall(336) != -1 or ctypes.get_errno() != errno.ENOSYS


def build(recorder, text, name, *command):
    source, program = recorder.dir / name, recorder.dir / name.split(".")[0]
    source.write_text(text)
    subprocess.run([*command, "-o", program, source], check=True, cwd=recorder.dir)
    return program


@pytest.fixture
def leaf(recorder):
    return build(recorder, LEAF, "leaf.c", "cc", "-O1", "-w")


@pytest.mark.parametrize(
    ("place", "what", "why"),
    [
        ("segment", "an instruction with a segment prefix", "set no probe, and say nothing; 'user"),
        ("locked", "an instruction with the prefix 'lock'", "set no probe, and say nothing; 'user"),
        ("calls", "a system call", "the program would go on at a wrong address"),
    ],
)
def test_what_the_kernel_cannot_probe(recorder, leaf, place, what, why):
    plus = "+0x19" if place == "calls" else FIRST
    said, remedy = refused_place(recorder, leaf, "user", place + plus)
    assert said == f"at '{place}{plus}' of PROGRAM is {what}, which the kernel cannot probe"
    assert why in remedy


@pytest.mark.skipif(not optimises(), reason="this kernel puts no calls in the place of no-ops")
@pytest.mark.parametrize(
    ("kind", "place"),
    [("user", f"five{FIRST}"), ("user", f"sized{FIRST}"), ("usdt", "own:amid")],
)
def test_a_call_that_would_overwrite_values(recorder, leaf, kind, place):
    said, remedy = refused_place(recorder, leaf, kind, place)
    assert said == f"at '{place}' of PROGRAM is a no-op of five bytes, amid a function"
    assert "overwrites what the function keeps below its stack pointer" in remedy
    # What it names can be probed.
    (at,) = [word for word in remedy.split() if word.startswith("PROGRAM:0x")]
    schema = recorder.dir / "next.klogger"
    place = at.strip("'").replace("PROGRAM", str(leaf))
    schema.write_text(f"event E {{ }}\nprobe user {place}() {{ klogger(E); }}\n")
    assert recorder.command("check", schema).code == 0


def test_places_that_are_probed_compute_the_same(recorder, leaf, clean_kernel):
    places = [f"user {leaf}:four{FIRST}", f"user {leaf}:entry+4", f"usdt {leaf}:own:begun"]
    places += [f"user {leaf}:entry", f"return user {leaf}:five"]
    schema = recorder.dir / "good.klogger"
    events = "".join(f"event E{n} {{ }}\n" for n in range(len(places)))
    probes = (f"probe {place}() {{ klogger(E{n}); }}\n" for n, place in enumerate(places))
    schema.write_text(events + "".join(probes))
    done, path = recorder.run("-s", schema, "--", leaf)
    assert (done.code, done.out.strip()) == (0, "0"), done.err
    log = Log(recorder.klogger, path)
    counts = [log.one(f"SELECT count(*) FROM E{n}") for n in range(len(places))]
    assert counts == [1009] * len(places)


def returns(recorder, program, *functions):
    """What a program prints whose functions are probed at their returns; and the log."""
    schema = recorder.dir / "returns.klogger"
    probes = (f"probe return user {program}:{f}(int r) {{ klogger(E, r); }}\n" for f in functions)
    schema.write_text("event E { int result }\n" + "".join(probes))
    return recorder.run("-s", schema, "--", program)


def test_exceptions_pass_functions_whose_returns_are_probed(recorder, clean_kernel):
    program = build(recorder, THROWS, "throws.cc", "c++", "-O1")
    alone = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    done, path = returns(recorder, program, "inner", "outer")
    assert (done.code, done.out) == (0, alone), done.err
    # 103 of 307 numbers are thirds.
    found = Log(recorder.klogger, path).rows("SELECT result FROM E ORDER BY ALL")
    returned = [n for n in range(307) if n % 3]
    assert [n for (n,) in found] == sorted(returned + [n + 1 for n in returned])


def test_returns_that_cannot_be_found(recorder):
    program = build(recorder, THROWS, "throws.cc", "c++", "-O2", "-fno-optimize-sibling-calls")
    jumps = build(recorder, THROWS, "jumps.cc", "c++", "-O2", "-foptimize-sibling-calls")
    assert refused_or_none(recorder, program) is None
    said, remedy = refused_or_none(recorder, jumps)
    assert said == (
        "cannot probe the return of 'passes_on' of PROGRAM: it jumps to another function"
    )
    assert remedy.startswith("exceptions may pass it, so that a return address which the kernel")


def refused_or_none(recorder, program):
    schema = recorder.dir / "one.klogger"
    place = f"{program}:passes_on"
    schema.write_text(f"event E {{ }}\nprobe return user {place}() {{ klogger(E); }}\n")
    if recorder.command("check", schema).code == 0:
        return None
    return refused_place(recorder, program, "return user", "passes_on")


@pytest.mark.skipif(not shutil.which("go"), reason="no Go compiler here")
@pytest.mark.full("the compiler of Go takes more than 3 s")
def test_stacks_of_go_move(recorder, clean_kernel, monkeypatch):
    monkeypatch.setenv("GOCACHE", str(recorder.dir / "cache"))
    program = build(recorder, GO, "moves.go", "go", "build")
    alone = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    assert alone == f"ok {sum(10 * n + 7 for n in range(53))}\n"
    done, path = returns(recorder, program, "main.outer")
    assert (done.code, done.out) == (0, alone), done.err
    found = Log(recorder.klogger, path).rows("SELECT result FROM E ORDER BY ALL")
    assert [n for (n,) in found] == [10 * n + 7 for n in range(53)]


def test_what_a_hit_does_is_listed(recorder, leaf):
    listed = json.loads(recorder.command("places", "--format", "json", leaf).out)
    hits = {place["name"].split(":", 1)[1]: place["hit"] for place in listed}
    # At the beginning of `five` is a store, of `entry` endbr64.
    assert hits["five"] == hits["entry"] == "single-stepped"
    no_op = "optimised" if optimises() else "single-stepped"
    assert hits["own:begun"] == hits["own:amid"] == no_op
    assert "usdt" in recorder.command("places", leaf).out
