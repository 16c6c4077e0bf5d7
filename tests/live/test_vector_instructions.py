# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Vector instructions, instead of which the kernel would execute another one, or where it would set
no probe without saying so: they are refused, whatever the kind of the probe, and left out by
wildcards.
"""

import platform
import re
import subprocess
from pathlib import Path

import pytest
from conftest import refused_place
from oracles import Log

pytestmark = [
    pytest.mark.skipif(platform.machine() != "x86_64", reason="instructions of x86"),
    pytest.mark.skipif(" avx" not in Path("/proc/cpuinfo").read_text(), reason="no AVX here"),
]

# `vpcmpeqb` has the opcode of a conditional jump: with a probe, `v_compares` does not return -1 any
# more. `vmovd` has that of an instruction that the kernel does not probe. A static probe is there.
PROGRAM = r"""
#include <stdio.h>
#define CODE __attribute__((naked, noipa))
CODE int v_compares(void) { asm("vpcmpeqb %xmm1, %xmm1, %xmm1\n vmovd %xmm1, %eax\n ret"); }
CODE int v_moves(int n) { asm("vmovd %edi, %xmm1\n movd %xmm1, %eax\n ret"); }
CODE int v_plain(int n) { asm("movd %edi, %xmm1\n movd %xmm1, %eax\n ret"); }
asm(".pushsection .note.stapsdt, \"\", \"note\"\n .balign 4\n .long 8, 2f - 1f, 3\n"
    ".asciz \"stapsdt\"\n 1: .quad v_moves, 0, 0\n .asciz \"own\", \"moved\", \"\"\n"
    "2: .balign 4\n .popsection");
int main(void)
{
    int wrong = 0;
    for (int n = 0; n < 101; n++)
        wrong += (v_compares() != -1) + (v_moves(n) != n) + (v_plain(n) != n);
    printf("%d\n", wrong);
}
"""


@pytest.fixture
def program(recorder):
    source, program = recorder.dir / "vectors.c", recorder.dir / "vectors"
    source.write_text(PROGRAM)
    subprocess.run(["cc", "-O2", "-mavx", "-w", "-o", program, source], check=True)
    return program


@pytest.fixture
def refused(recorder, program):
    return lambda kind, place: refused_place(recorder, program, kind, place)


@pytest.mark.parametrize(
    ("kind", "place"), [("user", "v_moves"), ("return user", "v_moves"), ("usdt", "own:moved")]
)
def test_one_place(refused, program, kind, place):
    what, remedy = refused(kind, place)
    assert what == f"at '{place}' of PROGRAM is a vector instruction, which the kernel cannot probe"
    said = "it would execute another one, or set no probe; 'user PROGRAM:(0x[0-9a-f]+)' is next"
    found = re.fullmatch(said, remedy)
    names = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    (address,) = [line.split()[0] for line in names.splitlines() if line.endswith(" v_moves")]
    # `vmovd %edi, %xmm1` is c5 f9 6e cf.
    assert int(found[1], 16) == int(address, 16) + 4


@pytest.mark.full("others of this file are in the gate")
@pytest.mark.parametrize(("kind", "place"), [("user", "v_mov*"), ("usdt", "own:*")])
def test_nothing_that_matches_can_be_probed(refused, kind, place):
    what, remedy = refused(kind, place)
    assert what.startswith(f"none of the 1 places that '{kind} PROGRAM:{place}' matches can")
    assert "vector instructions" in remedy


@pytest.mark.full("others of this file are in the gate")
def test_no_probe_makes_a_program_compute_something_else(recorder, program, clean_kernel):
    schema = recorder.dir / "vectors.klogger"
    schema.write_text(
        "event E { ushort place as place }\n"
        "probe user command:v_*() { klogger(E, klogger_place()); }\n"
    )
    done, path = recorder.run("-s", schema, "--", program)
    assert (done.code, done.out.strip()) == (0, "0"), done.err
    counts = Log(recorder.klogger, path).rows("""
        SELECT d.text, count(*) FROM E AS e JOIN decoding AS d
        ON d.decoding = 'place' AND d.value = e.place GROUP BY 1
    """)
    assert [(text.split(":")[-1], times) for text, times in counts] == [("v_plain", 101)]
