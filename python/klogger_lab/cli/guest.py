# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger guest`: runs a command in a QEMU guest with a kernel of one's choice, and brings the log
out.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from klogger import extras, outputs, program
from klogger.cli import Parser, Progress, guarded
from klogger.failure import Failure
from klogger.program import find_klogger
from klogger.units import size
from klogger_lab.cli import split
from klogger_lab.guest import kernels, machine
from klogger_lab.guest.accel import kvm_works
from klogger_lab.guest.kernels import Kernel
from klogger_lab.guest.machine import Machine, Relay

QEMU = "qemu-system-x86_64"
# What virtme-ng and we start, and the Debian packages that bring it.
PROGRAMS = {
    QEMU: "qemu-system-x86",
    "modprobe": "kmod",
    "file": "file",
    "busybox": "busybox-static",
}

EPILOG = """\
examples:
  klogger guest -- uname -a                       a command under Debian's kernel
  klogger guest -s scheduler -- make -j2          record it; the log is scheduler.klog, here
  klogger guest -s scheduler -a -o all.klog -- ./load
                                                  record everything that happens in the guest
  klogger guest --kernel ~/linux -s scheduler -- ./load
                                                  the kernel that was built in ~/linux
  klogger guest --kernel linux-image-6.12.9-amd64_6.12.9-1_amd64.deb -- uname -r
                                                  a Debian package's, which need not be installed
  klogger guest --kernel bzImage --append 'threadirqs loglevel=7' -v -- cat /proc/interrupts
                                                  more words on its command line; show its console
  klogger guest -s scheduler --record=--compress --record=--buffer-size=16M -- ./load
                                                  options for 'klogger record'
  klogger guest --engine kernel -s scheduler -- ./load
                                                  with the kernel engine: a crash is the guest's

The guest's root file system is this machine's: the same programs, the same files, the same current
folder and environment. The command runs as root, with its own /proc, /sys, /dev, /run, no input and
no network. What it writes lasts until it ends: only the log, its output and its exit code come out.
What it leaves running ends with it.

KVM is used where it works, which is found out by booting a kernel once; else QEMU emulates the CPU,
and times are not those of a real machine, but counts and orders are.

Exit code: the command's; 2 if the guest could not be run.
"""


def parser() -> argparse.ArgumentParser:
    found = Parser(
        prog="klogger guest",
        usage="klogger guest [OPTIONS] -- COMMAND...",
        description="Run a command in a QEMU guest that has this machine's "
        "files and another kernel.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = found.add_argument
    add("--kernel", metavar="KERNEL", action="append", default=[],
        help="a bzImage, a linux-image .deb, or a folder in which a kernel was built (what"
        " 'scripts/setup guest' fetched, else the one that runs here); of a kernel that comes in"
        " several packages, each")  # fmt: skip
    add(
        "-s",
        "--schema",
        metavar="SCHEMA",
        action="append",
        default=[],
        help="record with it; may be repeated",
    )
    add("--engine", metavar="ENGINE", help="what logs: auto, bpf, kernel (auto)")
    add(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        help="the log (SCHEMA.klog); one that exists becomes FILE.old",
    )
    add("-a", "--all", action="store_true", help="record the whole guest, not only the command")
    add(
        "--record",
        metavar="OPTION",
        action="append",
        default=[],
        help="an option for 'klogger record'",
    )
    add("--smp", metavar="N", type=count, default=2, help="CPUs of the guest (2)")
    add("--memory", metavar="SIZE", type=memory, default="1G", help="its memory (1G)")
    add("--timeout", metavar="S", type=seconds, help="end a command that runs for longer")
    add("--append", metavar="WORDS", default="", help="more words for the kernel's command line")
    add(
        "--accel",
        choices=["auto", "kvm", "tcg"],
        default="auto",
        help="tcg emulates (auto: kvm if it works)",
    )
    add("-v", "--verbose", action="store_true", help="show the guest's console")
    add("-q", "--quiet", action="store_true", help="no progress, no summary of the recording")
    return found


def count(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,3}", text) or not 1 <= int(text) <= 255:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of CPUs, from 1 to 255")
    return int(text)


def memory(text: str) -> str:
    if not re.fullmatch(r"[1-9][0-9]*[MG]", text):
        raise argparse.ArgumentTypeError(f"'{text}' is not a size such as 512M or 2G")
    return text


def seconds(text: str) -> float:
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", text) or float(text) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds")
    return float(text)


def main(words: list[str] | None = None) -> int:
    ours, command = split(words)
    args, unknown = parser().parse_known_args(ours)
    return guarded(lambda: guest(args, unknown, command))


def guest(args: argparse.Namespace, unknown: list[str], command: list[str]) -> int:
    if unknown:
        raise Failure(
            f"'{unknown[0]}' is not an option",
            help="the command goes behind --: klogger guest -- COMMAND",
        )
    extras.GUEST.check()
    check(args, command)
    args.schema = [name for value in args.schema for name in names(value)]
    for schema in args.schema:
        check_schema(schema)
    kernel = kernels.choose(*args.kernel)
    output = (
        (args.output or Path(f"{Path(args.schema[0]).stem}.klog")).absolute()
        if args.schema
        else None
    )
    if output:
        check_output(output)
    missing = {program: package for program, package in PROGRAMS.items() if not which(program)}
    if missing:
        raise Failure(
            f"for a guest, this machine lacks {', '.join(missing)}",
            help=f"as root: apt-get install {' '.join(missing.values())}",
        )
    die_in_order()
    found = Machine(kernel, use_kvm(args, kernel), args.smp, args.memory, args.append, args.timeout)
    with tempfile.TemporaryDirectory(prefix="klogger-guest-") as name:
        work = Path(name)
        log = work / (output.name if output else "log")
        (work / "command").write_text(script(args, command, log))
        try:
            code = machine.run(found, work, relays(args, work, log, output), progress(args, found))
        except Failure as failure:
            raise with_log(failure, log, output) from None
        finally:
            kept = output is not None and keep(log, output)
    if output and code != 2 and not kept:
        raise Failure(f"the command ended with exit code {code}, but no log was written")
    return code


def check(args: argparse.Namespace, command: list[str]) -> None:
    if not command:
        raise Failure(
            "no command", help="end with -- COMMAND; 'klogger guest -- uname -a' for instance"
        )
    extra = {"-o": args.output, "-a": args.all, "--engine": args.engine, "--record": args.record}
    given = [option for option, value in extra.items() if value]
    if given and not args.schema:
        raise Failure(
            f"{given[0]} is about a recording, and there is none",
            help="name a schema: -s scheduler",
        )
    where = Path.cwd()
    if where.is_relative_to("/run") or where.is_relative_to("/dev"):
        raise Failure(
            f"{where}: the guest has a /{where.parts[1]} of its own", help="go to another folder"
        )


def names(value: str) -> list[str]:
    """The schemata of one -s, as 'klogger record' reads it."""
    return [value] if Path(value).exists() else value.split(",")


def check_schema(schema: str) -> None:
    """Here, because a boot is a long way to a spelling mistake."""
    if "/" in schema or "." in schema:
        if not Path(schema).exists():
            raise Failure(
                f"{schema}: no such file", help="'klogger list' shows the schemata that come along"
            )
    elif schema != "programs":
        program.klogger("show", schema)


def check_output(output: Path) -> None:
    if output.is_dir():
        raise Failure(f"{output}: a folder", help="-o names the log")
    if not os.access(output.parent, os.W_OK | os.X_OK):
        raise Failure(f"{output.parent}: no folder to write a log to", help="-o names another file")


def which(program: str) -> str | None:
    return shutil.which(
        program, path=f"{os.environ.get('PATH', '')}{os.pathsep}/usr/sbin{os.pathsep}/sbin"
    )


def die_in_order() -> None:
    """Whatever ends us, QEMU ends before."""

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    # The reader of our output is gone: an exception, not the end.
    signal.signal(signal.SIGPIPE, lambda number, _: end(number, None))


def use_kvm(args: argparse.Namespace, kernel: Kernel) -> bool:
    if args.accel != "auto":
        return bool(args.accel == "kvm")
    # Not a kernel that may itself be what does not work.
    try:
        trial = kernels.default()
    except Failure:
        trial = kernel
    return kvm_works(trial, QEMU)


def script(args: argparse.Namespace, command: list[str], log: Path) -> str:
    """What the guest's shell runs."""
    names = (name for name in os.environ if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name))
    lines = [f"export {name}={shlex.quote(os.environ[name])}" for name in names]
    lines.append(f"cd -- {shlex.quote(os.getcwd())} || exit 2")
    if not args.schema:
        return "\n".join([*lines, f"exec {shlex.join(command)}", ""])
    words = [str(Path(find_klogger()).resolve()), "record", "-o", str(log), *args.record]
    words += [f"--engine={args.engine}"] if args.engine else []
    words += ["-q"] if args.quiet else []
    for schema in args.schema:
        words += ["-s", schema]
    if not args.all:
        return "\n".join([*lines, f"exec {shlex.join([*words, '--', *command])}", ""])
    klogger = shlex.quote(words[0])
    return "\n".join([
        *lines,
        f"{shlex.join([*words, '-a'])} &",
        "recorder=$!",
        "# It listens as soon as all is attached.",
        f"until {klogger} mark 0 'the command begins' 2>/dev/null; do",
        "    kill -0 $recorder 2>/dev/null || { wait $recorder; exit; }",
        "    sleep 0.1",
        "done",
        shlex.join(command),
        "code=$?",
        "kill -TERM $recorder",
        "wait $recorder",
        "exit $code",
        "",
    ])  # fmt: skip


def relays(args: argparse.Namespace, work: Path, log: Path, output: Path | None) -> list[Relay]:
    """The recorder's messages name the log where it is in the end."""

    def rename(text: bytes) -> bytes:
        return (
            text.replace(os.fsencode(log), os.fsencode(args.output or output.name))
            if output
            else text
        )

    found = [Relay(work / "out", 1), Relay(work / "err", 2, rename)]
    return [*found, Relay(work / "console", 2)] if args.verbose else found


def progress(args: argparse.Namespace, found: Machine) -> machine.Show:
    """One line on a terminal, which goes away when the command begins."""
    if args.quiet or args.verbose:
        return lambda _: None
    how = "KVM" if found.kvm else "emulated"
    line = Progress(f"booting {found.kernel.release} ({how})")

    def show(since: float | None) -> None:
        if since is None:
            line.clear()
        else:
            line(f"{since:.0f} s")

    return show


def keep(log: Path, output: Path) -> bool:
    """Brings the log out, whole or not."""
    if not log.exists() or log.stat().st_size == 0:
        return False
    if os.path.lexists(output):
        outputs.move(output, output.with_name(f"{output.name}.old"))
    with outputs.scratch(output) as file:
        shutil.copy(log, file)
    return True


def with_log(failure: Failure, log: Path, output: Path | None) -> Failure:
    if output and log.exists() and log.stat().st_size:
        note = f"  what was recorded until then is in {output} ({size(log.stat().st_size)})"
        return Failure(f"{failure.message}\n{note}", help=failure.help)
    return failure


if __name__ == "__main__":
    sys.exit(main())
