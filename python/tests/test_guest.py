# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger guest` without a guest: which kernel it takes, whether it uses KVM, and what it
refuses.

tests/guest/test_command.py boots some.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import time
from pathlib import Path

import pytest

from klogger.failure import Failure
from klogger_lab.cli import guest as command
from klogger_lab.guest import accel, kernels, machine
from klogger_lab.guest.kernels import Kernel
from klogger_lab.guest.machine import Machine, Relay

RELEASE = "6.1.0-99-test"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KLOGGER_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache/guest"


def image(path: Path, release: str = RELEASE) -> Path:
    """What the head of a bzImage says, and no kernel."""
    head = bytearray(0x4000)
    head[0x202:0x206] = b"HdrS"
    head[0x20E:0x210] = (0x3000 - 0x200).to_bytes(2, "little")
    version = f"{release} (somebody@somewhere) #1 SMP\0".encode()
    head[0x3000 : 0x3000 + len(version)] = version
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(head)
    return path


def package(folder: Path, release: str = RELEASE, path: str = "boot", version: int = 1) -> Path:
    """A Debian package with such an image and a few modules."""
    tree = folder / "package"
    image(tree / path / f"vmlinuz-{release}", release)
    for module in ("fs/9p/9p.ko", "drivers/gpu/drm/drm.ko", f"v{version}.ko"):
        file = tree / "lib/modules" / release / "kernel" / module
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("ELF")
    control = tree / "DEBIAN/control"
    control.parent.mkdir(exist_ok=True)
    control.write_text(
        f"Package: linux-image-{release}\nVersion: {version}\nArchitecture: all\nMaintainer:"
        " x\nDescription: x\n"
    )
    found = folder / f"linux-image-{release}_{version}_all.deb"
    subprocess.run(["dpkg-deb", "-Znone", "-b", tree, found], check=True, capture_output=True)
    return found


def test_an_image_says_its_release_and_has_modules_beside_it(tmp_path: Path) -> None:
    modules = tmp_path / "a/lib/modules" / RELEASE
    (modules / "kernel").mkdir(parents=True)
    found = kernels.choose(str(image(tmp_path / "a/boot/vmlinuz")))
    assert found == Kernel(tmp_path / "a/boot/vmlinuz", RELEASE, None, modules)
    assert kernels.choose(str(image(tmp_path / "b/vmlinuz", "9.9.9-none"))).modules is None


def test_a_folder_of_headers_has_no_modules(tmp_path: Path) -> None:
    modules = tmp_path / "lib/modules" / RELEASE
    modules.mkdir(parents=True)
    (modules / "build").symlink_to("/usr/src/linux")
    found = kernels.choose(str(image(tmp_path / "vmlinuz")))
    assert found.modules is None
    assert "--mods=none" in machine.words(Machine(found, False), tmp_path)


def test_a_tree_in_which_a_kernel_was_built(tmp_path: Path) -> None:
    built = image(tmp_path / "linux/arch/x86/boot/bzImage")
    assert kernels.choose("linux") == Kernel(built, RELEASE, tmp_path / "linux", None)
    (tmp_path / "linux/modules.order").touch()
    assert kernels.choose("linux").modules == tmp_path / "linux/.virtme_mods/lib/modules/0.0.0"


def test_a_package_is_unpacked_once(tmp_path: Path, cache: Path) -> None:
    found = kernels.choose(str(package(tmp_path)))
    assert found.image == cache / RELEASE / f"boot/vmlinuz-{RELEASE}"
    assert found.modules == cache / RELEASE / "lib/modules" / RELEASE
    assert (found.modules / "kernel/fs/9p/9p.ko").exists()
    assert not (found.modules / "kernel/drivers/gpu").exists()
    (found.modules / "mine").touch()
    kernels.choose(str(tmp_path / f"linux-image-{RELEASE}_1_all.deb"))
    assert (found.modules / "mine").exists(), "unpacked again"


def test_a_package_built_anew_with_the_same_release_replaces_it(
    tmp_path: Path, cache: Path
) -> None:
    kernels.choose(str(package(tmp_path)))
    kernels.choose(str(package(tmp_path, version=2)))
    assert (cache / RELEASE / "lib/modules" / RELEASE / "kernel/v2.ko").exists()
    assert [path.name for path in cache.iterdir()] == [RELEASE], "something was left behind"


def split(folder: Path) -> list[str]:
    """The same in two packages, as Debian has it from 6.19 on."""
    made = []
    for part, name in (("binary", "vmlinuz"), ("modules", "kernel/fs/9p/9p.ko")):
        tree = folder / part
        image(tree / "usr/lib/modules" / RELEASE / name)
        (tree / "DEBIAN").mkdir()
        (tree / "DEBIAN/control").write_text(
            f"Package: linux-{part}-{RELEASE}\nVersion: 1\nArchitecture: all\nMaintainer:"
            " x\nDescription: x\n"
        )
        made.append(str(folder / f"linux-{part}-{RELEASE}_1_all.deb"))
        subprocess.run(
            ["dpkg-deb", "-Znone", "-b", tree, made[-1]], check=True, capture_output=True
        )
    return made


def test_a_kernel_in_two_packages(tmp_path: Path, cache: Path) -> None:
    made = split(tmp_path)
    for order in (made, made[::-1]):
        found = kernels.choose(*order)
        assert found.image == cache / RELEASE / "usr/lib/modules" / RELEASE / "vmlinuz"
        assert found.modules == found.image.parent
        assert (found.modules / "kernel/fs/9p/9p.ko").exists()
    with pytest.raises(Failure, match="only of packages several can make one kernel"):
        kernels.choose(made[0], str(image(tmp_path / "vmlinuz")))


def test_the_default_is_what_set_up_fetched_not_what_was_tried(tmp_path: Path, cache: Path) -> None:
    kernels.choose(str(package(tmp_path, "7.0.0-tried")))
    cache.mkdir(exist_ok=True)
    package(tmp_path / "old", "6.1.0-9-amd64").rename(
        cache / "linux-image-6.1.0-9-amd64_6.1.67-1_amd64.deb"
    )
    package(tmp_path / "new", "6.1.0-10-amd64").rename(
        cache / "linux-image-6.1.0-10-amd64_6.1.90-1_amd64.deb"
    )
    assert kernels.choose().release == "6.1.0-10-amd64"


def refused(capfd: pytest.CaptureFixture[str], *words: str) -> str:
    assert command.main(list(words)) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("klogger: ") and "\n  help: " in err
    return err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no command"),
        (["make"], "'make' is not an option"),
        (["-o", "x.klog", "--", "true"], "-o is about a recording, and there is none"),
        (["--engine", "bpf", "--", "true"], "--engine is about a recording"),
        (["--kernel", "none", "--", "true"], "none: no such file"),
        (["--kernel", "junk", "--", "true"], "junk: not a bzImage"),
        (["--kernel", "junk.deb", "--", "true"], "junk.deb: cannot be unpacked: "),
        (
            ["--kernel", "folder", "--", "true"],
            "folder: no kernel was built there: it has no arch/x86/boot/bzImage",
        ),
        (["-s", "./none.klogger", "--", "true"], "./none.klogger: no such file"),
        (["-s", "shceduler", "--", "true"], "there is no schema 'shceduler'"),
        (
            ["--kernel", "image", "-s", "scheduler", "-o", "none/x.klog", "--", "true"],
            "none: no folder to write a log",
        ),
        (
            ["--kernel", "image", "-s", "scheduler", "-o", "folder", "--", "true"],
            "folder: a folder",
        ),
    ],
)
def test_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    (tmp_path / "junk").write_bytes(b"\0" * 5000)
    (tmp_path / "junk.deb").write_text("junk")
    (tmp_path / "folder").mkdir()
    image(tmp_path / "image")
    assert message in refused(capfd, *words)


def test_a_package_without_a_kernel_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found = package(tmp_path, path="elsewhere")
    assert "there is no vmlinuz in it" in refused(capfd, "--kernel", str(found), "--", "true")


@pytest.mark.parametrize(
    "words",
    [
        ["--smp", "0"],
        ["--smp", "many"],
        ["--memory", "12"],
        ["--timeout", "0"],
        ["--timeout", "inf"],
    ],
)
def test_numbers_that_are_none_are_refused(
    capfd: pytest.CaptureFixture[str], words: list[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main([*words, "--", "true"])
    assert ended.value.code == 2
    assert f"argument {words[0]}: '{words[1]}' is not a" in capfd.readouterr().err


def test_no_kernel_at_all(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    names = os.uname()
    strange = os.uname_result(
        [names.sysname, names.nodename, "0.0-strange", names.version, names.machine]
    )
    monkeypatch.setattr(kernels.os, "uname", lambda: strange)
    assert "there is no kernel for the guest" in refused(capfd, "--", "true")


def test_programs_that_are_missing_are_named_with_their_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    image(tmp_path / "image")
    monkeypatch.setattr(command, "PROGRAMS", {"no-such-qemu": "qemu-system-x86", "sh": "dash"})
    text = refused(capfd, "--kernel", "image", "--", "true")
    assert "this machine lacks no-such-qemu" in text
    assert "apt-get install qemu-system-x86\n" in text


def test_the_guest_has_some_folders_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir("/dev/shm")
    assert "/dev/shm: the guest has a /dev of its own" in refused(capfd, "--", "true")


def program(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\necho tried >>{path}.log\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kvm").touch()
    monkeypatch.setattr(accel, "DEVICE", tmp_path / "kvm")


@pytest.mark.parametrize(
    ("qemu", "works"),
    [
        ("exit 0", True),
        ("exit 1", False),
        pytest.param("exec sleep 60", False, marks=pytest.mark.full("waits 3 s")),
    ],
)
@pytest.mark.usefixtures("device")
def test_kvm_is_used_when_a_kernel_has_booted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, qemu: str, works: bool
) -> None:
    monkeypatch.setattr(accel, "PATIENCE", 3)
    tried = program(tmp_path / "qemu", qemu)
    for _ in range(2):
        assert accel.kvm_works(Kernel(tmp_path / "image", RELEASE), tried) is works
    assert (tmp_path / "qemu.log").read_text() == "tried\n", "once for each boot of this machine"


@pytest.mark.usefixtures("device")
def test_kvm_is_tried_again_after_a_boot_of_this_machine(tmp_path: Path, cache: Path) -> None:
    cache.mkdir(parents=True)
    (cache / "kvm").write_text("another-boot no\n")
    assert accel.kvm_works(
        Kernel(tmp_path / "image", RELEASE), program(tmp_path / "qemu", "exit 0")
    )


def test_without_the_device_there_is_no_kvm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accel, "DEVICE", tmp_path / "none")
    assert not accel.kvm_works(
        Kernel(tmp_path / "image", RELEASE), program(tmp_path / "qemu", "exit 0")
    )
    assert not (tmp_path / "qemu.log").exists()


def arguments(*words: str) -> argparse.Namespace:
    return command.parser().parse_args(list(words))


def test_the_guests_script_keeps_words_folder_and_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strange = tmp_path / "a 'strange' $folder"
    strange.mkdir()
    monkeypatch.chdir(strange)
    monkeypatch.setenv("STRANGE", 'it\'s "$HOME"\n`x`')
    words = ["sh", "-c", 'printf "%s|" "$STRANGE" "$@"; pwd; exit 7', "x", "a b", "$c", "it's"]
    (tmp_path / "script").write_text(command.script(arguments(), words, tmp_path / "log"))
    done = subprocess.run(
        ["sh", tmp_path / "script"],
        env={"PATH": os.environ["PATH"]},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == f"it's \"$HOME\"\n`x`|a b|$c|it's|{strange}\n"
    assert done.returncode == 7


RECORDER = """
case $1 in
    record) echo "$*" >>"$ASKED"; shift $(($# - 2)); [ "$1" = -- ] || exec sleep 60; "$2" ;;
    mark) grep -qs record "$ASKED" && echo "$*" >>"$ASKED" ;;
esac"""


def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps what it is asked. As `record` it runs the command; `mark` fails until
    a recording runs.
    """
    monkeypatch.setenv("ASKED", str(tmp_path / "asked"))
    monkeypatch.setenv("KLOGGER", program(tmp_path / "klogger", RECORDER))


def test_recording_of_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder(tmp_path, monkeypatch)
    args = arguments(
        "-s", "scheduler", "-s", "./x.klogger", "--engine", "kernel", "--record=--compress"
    )
    (tmp_path / "script").write_text(command.script(args, ["false"], tmp_path / "log"))
    assert subprocess.run(["sh", tmp_path / "script"], check=False).returncode == 1
    asked = (
        f"record -o {tmp_path}/log --compress --engine=kernel -s scheduler -s ./x.klogger --"
        " false\n"
    )
    assert (tmp_path / "asked").read_text() == asked


def test_recording_of_everything_waits_for_the_recorder_and_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder(tmp_path, monkeypatch)
    (tmp_path / "script").write_text(
        command.script(arguments("-s", "scheduler", "-a"), ["sh", "-c", "exit 5"], tmp_path / "log")
    )
    assert subprocess.run(["sh", tmp_path / "script"], check=False, timeout=50).returncode == 5
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked == [f"record -o {tmp_path}/log -s scheduler -a", "mark 0 the command begins"]


def test_the_machine_that_virtme_is_asked_for(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path / "image", RELEASE)
    emulated = machine.words(Machine(kernel, False, 3, "512M", "threadirqs"), tmp_path)
    assert {"--disable-kvm", "--cpus=3", "--memory=512M", f"--kimg={tmp_path}/image"} <= set(
        emulated
    )
    line = next(word for word in emulated if "console=" in word)
    assert "threadirqs" in line and line.endswith(f" init={tmp_path}/init")
    assert "--disable-kvm" not in machine.words(Machine(kernel, True), tmp_path)
    assert f"--kdir={tmp_path}" in machine.words(
        Machine(Kernel(kernel.image, RELEASE, tmp_path), True), tmp_path
    )


def test_relay_translates_names_that_are_written_in_pieces(tmp_path: Path) -> None:
    source, ours = os.pipe()
    relay = Relay(tmp_path / "err", ours, lambda text: text.replace(b"/tmp/x/a.klog", b"a.klog"))
    with (tmp_path / "err").open("ab", buffering=0) as file:
        for piece in (b"one\nin /tmp", b"/x/a.klog; ", b"then /tmp/x/", b"a.klog\nno newline"):
            file.write(piece)
            relay.copy()
    relay.finish()
    os.close(ours)
    with os.fdopen(source, "rb") as end:
        assert end.read() == b"one\nin a.klog; then a.klog\nno newline"


def test_a_line_that_stands_still_is_shown(tmp_path: Path) -> None:
    source, ours = os.pipe()
    relay = Relay(tmp_path / "out", ours)
    (tmp_path / "out").write_bytes(b"continue? ")
    relay.copy()
    relay.copy()
    assert os.read(source, 100) == b"continue? "
    relay.finish()
    os.close(source)
    os.close(ours)


@pytest.fixture
def slow_virtme(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is started in place of virtme-ng: a console that says two lines, and then nothing."""
    monkeypatch.setattr(
        machine,
        "VIRTME",
        r"print('Linux \x1b[1mversion', '\r\nreached 1', flush=True); import time; time.sleep(600)",
    )


@pytest.mark.usefixtures("slow_virtme")
def test_a_kernel_that_does_not_boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "BOOT", float("inf"))
    seen: list[float | None] = []

    def show(since: float | None) -> None:
        """Its time is over as soon as it has said all that it says."""
        seen.append(since)
        console = tmp_path / "console"
        if console.exists() and "reached 1" in console.read_text():
            monkeypatch.setattr(machine, "BOOT", 0.0)

    with pytest.raises(Failure, match=r"had not booted after [0-9]+ s, and was ended") as failed:
        machine.run(Machine(Kernel(tmp_path / "image", RELEASE), False), tmp_path, [], show)
    assert seen[0] is not None and seen[-1] is None
    assert "    Linux version \n    reached 1" in failed.value.message


@pytest.mark.usefixtures("slow_virtme")
def test_a_command_that_takes_too_long(tmp_path: Path) -> None:
    (tmp_path / "started").touch()
    an_hour_ago = time.time() - 3600
    os.utime(tmp_path / "started", (an_hour_ago, an_hour_ago))
    with pytest.raises(
        Failure, match=r"the command was still running after 36\d\d s, and the guest was ended"
    ):
        machine.run(
            Machine(Kernel(tmp_path / "image", RELEASE), False, timeout=1),
            tmp_path,
            [],
            lambda _: None,
        )


@pytest.mark.parametrize(
    ("says", "message"),
    [
        (
            "Kernel panic - not syncing: VFS: no root",
            "the guest's kernel (6.1.0-99-test) panicked: VFS: no root",
        ),
        ("Failed to mount real root.  We are stuck.", "it has no driver for 9p over virtio"),
        ("klogger guest: it has no tmpfs", "the guest's kernel does not suffice: it has no tmpfs"),
        ("", "the guest did not start: qemu: nonsense"),
    ],
)
def test_a_guest_that_ends_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, message: str
) -> None:
    monkeypatch.setattr(
        machine, "VIRTME", f"import sys; print({says!r}); sys.stderr.write('qemu: nonsense')"
    )
    with pytest.raises(Failure) as failed:
        machine.run(
            Machine(Kernel(tmp_path / "image", RELEASE), False), tmp_path, [], lambda _: None
        )
    assert message in failed.value.message
    assert failed.value.help


def test_a_folder_that_no_command_line_can_name(tmp_path: Path) -> None:
    work = tmp_path / "with space"
    work.mkdir()
    with pytest.raises(Failure, match="the kernel's command line cannot name this folder"):
        machine.run(Machine(Kernel(tmp_path / "image", RELEASE), False), work, [], lambda _: None)
