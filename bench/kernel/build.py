# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Builds what the guest of bench/kernel/run needs, in the cache: hits.ko, klogger's modules,
LTTng's.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
HITS = HERE / "hits"
# The probe that we need, and what LTTng's tracer is linked with. Others do not compile with every
# kernel.
LTTNG_PROBES = "lttng-probe-power.o lttng-kprobes.o lttng-kretprobes.o lttng-uprobes.o"


# Of SystemTap's probe: it takes a minute to compile, where it compiles.
STAP_SCRIPT = 'probe kernel.trace("cpu_frequency") { printf("%d %d\\n", $frequency, $cpu_id) }'
STAP_SECONDS = 600


class Unavailable(RuntimeError):
    """What cannot be measured here, and why."""


def run(*command, **more) -> str:
    done = subprocess.run(
        [str(c) for c in command], capture_output=True, text=True, check=False, **more
    )
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-3:]
        raise Unavailable(f"{Path(str(command[0])).name} failed: {' / '.join(last)}")
    return done.stdout


def guest_release(cache: Path) -> str:
    """Release of the guest's kernel."""
    if not (complete := cache / "guest/complete").exists():
        raise Unavailable("no kernel for a guest: run 'scripts/setup guest'")
    return complete.read_text().strip().removeprefix("linux-image-")


def headers(release: str) -> Path:
    for tree in (Path(f"/usr/src/linux-headers-{release}"), Path(f"/lib/modules/{release}/build")):
        if (tree / "Module.symvers").exists():
            return tree
    raise Unavailable(f"no headers of kernel {release}: apt-get install linux-headers-{release}")


def hits(klogger: str, kernel: Path, out: Path) -> Path:
    """klogger.ko, klogger_frequency.ko and hits.ko, and the schemata."""
    modules, work = out / "modules", out / "hits"
    shutil.copytree(HITS, work)
    run(klogger, "build", "--kernel", kernel, "-s", HITS / "frequency.klogger", "-o", modules)
    run(klogger, "gen", "--engine", "kernel", HITS / "calls.klogger", "-o", work)
    run(
        "make",
        "-C",
        kernel,
        f"M={work}",
        f"KBUILD_EXTRA_SYMBOLS={modules / 'Module.symvers'}",
        "modules",
    )
    shutil.copy(work / "hits.ko", modules)
    for schema in HITS.glob("*.klogger"):
        shutil.copy(schema, modules)
    return modules


def lttng_version() -> str:
    """Of Debian's package of LTTng's modules."""
    shown = run("apt-cache", "show", "--no-all-versions", "lttng-modules-dkms")
    return next(line.split()[1] for line in shown.splitlines() if line.startswith("Version: "))


def versions(cache: Path, klogger: str, lttng: bool) -> dict[str, str]:
    """Of all that has a part in the numbers."""
    found = {
        "Linux": guest_release(cache),
        "klogger": run(klogger, "--version").split()[1],
        "QEMU": run("qemu-system-x86_64", "--version").split()[3],
        "gcc": run("gcc", "-dumpfullversion").strip(),
    }
    return {**found, "lttng-modules": lttng_version()} if lttng else found


def lttng(kernel: Path, release: str, out: Path) -> Path:
    """LTTng's modules from Debian's package, as /lib/modules/RELEASE. They are kept."""
    version = lttng_version()
    tree = out / "lib/modules" / release
    if (out / "version").exists() and (out / "version").read_text() == f"{version} {release}":
        return tree
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    run("apt-get", "-o", "APT::Sandbox::User=root", "download", "lttng-modules-dkms", cwd=out)
    (package,) = out.glob("*.deb")
    run("dpkg-deb", "-x", package, out / "package")
    (source,) = (out / "package/usr/src").iterdir()
    probes = source / "src/probes/Kbuild"
    flags = probes.read_text().split("obj-", 1)[0]
    probes.write_text(f"{flags}obj-$(CONFIG_LTTNG) += {LTTNG_PROBES}\n")
    jobs = f"-j{os.cpu_count()}"
    run("make", jobs, "-C", kernel, f"M={source}", "CONFIG_LTTNG=m", "modules")
    for module in source.rglob("*.ko"):
        (tree / "extra").mkdir(parents=True, exist_ok=True)
        shutil.copy(module, tree / "extra")
    for empty in ("modules.order", "modules.builtin"):
        (tree / empty).touch()
    run("depmod", "-b", out, release)
    (out / "version").write_text(f"{version} {release}")
    return tree


def stap_tree(kernel: Path, out: Path) -> Path:
    """The kernel's headers as SystemTap looks for them: with those of the tracepoint, and of no
    other.
    """
    (out / "include/trace/events").mkdir(parents=True)
    for file in kernel.iterdir():
        if file.name != "include":
            (out / file.name).symlink_to(file.resolve())
    for file in (kernel / "include").iterdir():
        if file.name != "trace":
            (out / "include" / file.name).symlink_to(file.resolve())
    common = re.match(r"include (.*)/Makefile", (kernel / "Makefile").read_text())
    header = Path(common[1] if common else kernel, "include/trace/events/power.h")
    (out / "include/trace/events/power.h").symlink_to(header)
    return out


def stap(kernel: Path, folder: Path) -> None:
    """SystemTap's module for the tracepoint, as far as it comes: with the kernels that we know,
    never to its end.
    """
    if not shutil.which("stap"):
        raise Unavailable("no stap: apt-get install systemtap")
    tree = stap_tree(kernel, folder / "stap")
    command = ["stap", "-r", tree, "-p4", "-m", "klogger_stap", "-e", STAP_SCRIPT]
    try:
        done = subprocess.run(
            list(map(str, command)),
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=STAP_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"stap has not compiled its module after {STAP_SECONDS} s") from None
    version = run("stap", "--version").splitlines()
    name = re.search(r"version (\S+)/", " ".join(version))
    what = f"SystemTap {name[1] if name else ''}".strip()
    if done.returncode == 0:
        raise Unavailable(
            f"{what} compiles its module here, and nothing takes it into the guest yet"
        )
    why = next((line for line in done.stderr.splitlines() if " error: " in line), "no reason given")
    raise Unavailable(f"{what} does not compile its module for this kernel: {why.split('/')[-1]}")
