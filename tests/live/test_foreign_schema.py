# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Root checks a schema that a stranger wrote: its C reaches no file, no assembler and no section,
however it is put. Where it is compiled there is nothing to reach.
"""

import ctypes
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import compilers
import pytest

SECRET = "the-secret-of-root"
JOINED = "#define J(a, b) a##b\n#define X(a, b) J(a, b)\n"
# What stands in `code`, `{file}` being one that only root may read; and what the message must say.
HOSTILE = {
    "pasted asm": (
        JOINED + 'static void f(void) {{ J(as, m)(".incbin \\"{file}\\""); }}',
        "`asm` reaches beyond",
    ),
    "pasted twice": (
        JOINED + 'static void f(void) {{ X(__as, m__)(".incbin \\"{file}\\""); }}',
        "`__asm__` reaches",
    ),
    "asm in two lines": (
        'static void f(void) {{ as\\\nm(".incbin \\"{file}\\""); }}',
        "`asm` reaches beyond",
    ),
    "include in two lines": ('#inc\\\nlude "{file}"', "`#include` reaches beyond"),
    "hash in two lines": ('#\\\n include "{file}"', "`# include` reaches beyond"),
    "a carriage return": ('// x\r#include "{file}"\n', "a carriage return"),
    "a blank behind a backslash": (
        '// \\ \n/*\n#include "{file}"\n// */',
        "blanks between a backslash",
    ),
    "an old number": ("int a = 1'x/* ';\n#include \"{file}\"\n//*/", "reaches beyond"),
    "digraph": ('%:include "{file}"', "reaches beyond"),
    "embed": ('const char a[] = {{\n#embed "{file}"\n}};', "reaches beyond"),
    "line": ('#line 1 "klogger.bpf.h"', "reaches beyond"),
    "marker": ('# 1 "klogger.bpf.h"', "reaches beyond"),
    "is it there": (
        JOINED + '#if J(__has_, include)("{file}")\n#endif',
        "'__has_include' is not defined",
    ),
    "pragma": (JOINED + 'J(_Prag, ma)("clang section bss=\\"license\\"")', "`#` reaches beyond"),
    "license": ('char mine[] SEC("license") = "GPL";', "`__attribute__` reaches beyond"),
    "pasted section": (
        JOINED + 'int a __attribute__((J(sec, tion)("maps")));',
        "`__attribute__` reaches beyond",
    ),
    "section of C23": (JOINED + 'J([, [) gnu::section("maps") J(], ]) int a;', "C"),
}


@pytest.fixture
def place():
    """A folder that every user may enter: compilers are not run as root."""
    with tempfile.TemporaryDirectory(prefix="klogger-test-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def check(recorder, place, code, **environment):
    file = place / "strange.klogger"
    probe = (
        "probe tracepoint task_rename(struct task_struct *task, const char *comm) { klogger(A,"
        " task->pid); }"
    )
    # No translation: a carriage return must stay one.
    file.write_bytes(f"event A {{ int a }}\ncode {{\n{code}\n}}\n{probe}\n".encode())
    return subprocess.run(
        [recorder.klogger, "check", file],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )


@pytest.mark.parametrize("name", HOSTILE)
def test_c_reaches_nothing(recorder, place, name):
    code, message = HOSTILE[name]
    secret = place / "secret"
    secret.write_text(f"{SECRET}\n")
    secret.chmod(0o600)
    done = check(recorder, place, code.format(file=secret))
    assert done.returncode == 2, done.stderr
    assert message in " ".join(done.stderr.split()), done.stderr
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.full("others of this file are in the gate")
def test_what_is_allowed(recorder, place):
    code = (
        JOINED
        + "#define MAX 3\nstatic __always_inline int f(int a) { barrier(); return a < MAX ? J(a,) :"
        " 1; }"
    )
    done = check(recorder, place, code)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


# A compiler that tries what a hostile schema would like it to, and says what has come of it.
CURIOUS = """#!/bin/sh
say() { echo "strange.klogger:1:1: error: $*" >&2; }
[ "$(id -u)" -gt 65534 ] && [ "$(id -G)" = "$(id -u)" ] || say "user $(id -u), groups $(id -G)"
for file in SECRET /root /home /etc/passwd /proc/self/environ /proc/1/cmdline /dev/mem; do
    if cat "$file" >/dev/null 2>&1 || ls "$file/" >/dev/null 2>&1; then say "reads $file"; fi
done
for file in x PLACE/x /tmp/x /dev/shm/x; do
    if (: > "$file") 2>/dev/null; then say "writes $file"; fi
done
grep -q . klogger.bpf.h || say "cannot read what it compiles"
say "the end"
exit 1
"""


def test_the_compiler_sees_nothing(recorder, place):
    secret = place / "open"
    secret.mkdir()
    (secret / "secret").write_text("every user may read it, but not the compiler")
    # In a folder of its own, for it may read what is beside it.
    tools = place / "tools"
    tools.mkdir()
    compiler = tools / compilers.BEST
    compiler.write_text(
        CURIOUS.replace("SECRET", str(secret / "secret")).replace("PLACE", str(place))
    )
    for path in (secret, tools, compiler):
        path.chmod(0o755)
    (secret / "secret").chmod(0o644)
    done = check(recorder, place, "", PATH=f"{tools}:{os.environ['PATH']}")
    said = [line.rsplit("): ", 1)[-1].strip() for line in done.stderr.splitlines() if "×" in line]
    assert said[-1:] == ["the end"], done.stderr
    if no_landlock():
        said = [line for line in said if not line.startswith(("reads ", "writes /"))]
    assert said == ["the end"], done.stderr


def no_landlock():
    """What landlock_create_ruleset() says when it is asked for its version."""
    return ctypes.CDLL(None).syscall(444, None, 0, 1) < 1


def compiler_in(place, mode, script):
    """A folder with this mode, and in it a script in the place of the compiler."""
    tools = place / "tools"
    tools.mkdir(mode=mode)
    compiler = tools / compilers.BEST
    compiler.write_text(script)
    compiler.chmod(0o755)
    return tools


def test_a_compiler_that_only_root_can_run(recorder, place):
    tools = compiler_in(place, 0o700, "#!/bin/sh\n")
    done = check(recorder, place, "", PATH=f"{tools}:{os.environ['PATH']}")
    assert "klogger does not compile as root" in done.stdout + done.stderr


def test_endless_output(recorder, place):
    tools = compiler_in(place, 0o755, "#!/bin/sh\nexec yes\n")
    done = check(recorder, place, "", PATH=f"{tools}:{os.environ['PATH']}")
    assert "it writes more than 67108864 bytes" in done.stdout + done.stderr, done.stderr
    shutil.rmtree(tools)


# In C, a number can be called: it is that of one of the kernel's functions.
@pytest.mark.parametrize(
    ("number", "fine"), [(5, True), (36, False), (109, False)], ids=["time", "write", "signal"]
)
def test_functions_of_the_kernel(recorder, place, number, fine):
    code = f"static long f(void) {{ return ((long (*)(long))({number} + 0ul))(9); }}"
    probe = "; f(); klogger(A,"
    file = place / "strange.klogger"
    file.write_text(
        f"event A {{ int a }}\ncode {{ {code} }}\nprobe tracepoint task_rename(struct"
        f" task_struct *task, const char *comm) {{ {probe} task->pid); }}\n"
    )
    done = recorder.command("check", file)
    assert (done.code == 0) == fine, done.err
    assert fine or f"calls function {number} of bpf" in done.err, done.err


HEADERS = sorted(Path("/usr/src").glob("linux-headers-*-amd64"))


@pytest.mark.full("others of this file are in the gate")
@pytest.mark.parametrize(
    ("code", "reads"), [("", False), ('__PASTE(as, m)(".incbin \\"{file}\\"");', True)]
)
def test_modules_are_built_of_headers_and_nothing_else(recorder, place, code, reads):
    """The kernel's own macros put words together too, and use the assembler: only where it is built
    is it kept in.
    """
    if not HEADERS:
        pytest.skip("no headers of a kernel: scripts/setup guest")
    secret, file = place / "secret", place / "strange.klogger"
    secret.write_text(SECRET)
    file.write_text(
        f"event A {{ int a }}\ncode {{ {code.format(file=secret)} }}\nprobe tracepoint"
        " task_rename(struct task_struct *task, const char *comm) { klogger(A, task->pid); }\n"
    )
    built = recorder.command("build", "-s", file, "--kernel", HEADERS[-1], "-o", place / "out")
    if reads and no_landlock():
        pytest.skip("this kernel has no Landlock")
    assert built.code == (2 if reads else 0), built.err
    assert (place / "out" / "klogger_strange.ko").exists() != reads
    if reads:
        assert "secret" in built.err, built.err
