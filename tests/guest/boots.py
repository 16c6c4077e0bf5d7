# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Boots that modules of tests share: what each has done in the guest is a case, one after another.

A module names its cases in CASES; a boot runs those of all modules that are tested, and the tests
read what they left. A case begins with an empty /out, /tmp and kernel log.
"""

import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

# Around each case: who fails takes nothing from the others.
CASE = """
echo "{name}: from second $(cut -d . -f 1 /proc/uptime)"
sh /cases/{name} >/out/.said 2>&1
echo $? >/out/.code
keep {name}
dmesg -c >/dev/null
rm -rf /tmp/*
"""


def nothing(_: pytest.FixtureRequest) -> list[str]:
    return []


@dataclass(frozen=True)
class Boot:
    """`single` is for probes that are patched in and out under load: see scripts/guest."""

    name: str
    memory: str = "1G"
    single: bool = False


# Without modules of klogger; and for the kernel engine.
BPF = Boot("bpf", memory="2G")
KERNEL = Boot("kernel", single=True)


@dataclass(frozen=True)
class Case:
    """A shell script, the files that it needs (FILE=AT), and the seconds after which it hangs.

    `last`: it leaves the guest changed, so that nothing but others of this kind may come after it.
    """

    boot: Boot
    script: str
    files: Callable[[pytest.FixtureRequest], list[str]] = nothing
    seconds: int = 300
    last: bool = False
    # Of scripts/kernel; Debian's otherwise.
    kernel: str = "debian"


def check(out: Path, name: str) -> None:
    """Fails unless the case has ended well."""
    console = (out / ".console").read_text(errors="replace")[-3000:]
    assert (out / name / ".code").exists(), f"the guest ended before {name} did:\n{console}"
    said = (out / name / ".said").read_text(errors="replace")[-3000:]
    assert (out / name / ".code").read_text() == "0\n", said


@dataclass
class Boots:
    """Each is booted when the first test asks for one of its cases."""

    request: pytest.FixtureRequest
    guest: Callable[..., subprocess.CompletedProcess]
    folder: Path
    image: Callable[[str], Path | None]
    done: dict[str, Path | BaseException] = field(default_factory=dict)
    times: Counter = field(default_factory=Counter)

    def case(self, name: str) -> Path:
        """What it left in /out, and with which exit code. Fails unless that is 0.

        For a test that is run again after that, it is booted again; once.
        """
        boot = self.cases()[name].boot
        if boot.name not in self.done:
            self.times[boot.name] += 1
            try:
                self.done[boot.name] = self.boot(boot)
            except (Exception, pytest.skip.Exception) as error:
                self.done[boot.name] = error
        out = self.done[boot.name]
        try:
            if isinstance(out, BaseException):
                raise out
            check(out, name)
        except Exception:
            if self.times[boot.name] == 1:
                del self.done[boot.name]
            raise
        return out / name

    def cases(self) -> dict[str, Case]:
        """Of all modules of which there are tests in this session."""
        modules = {item.module for item in self.request.session.items}
        every = [found for module in modules for found in getattr(module, "CASES", {}).items()]
        assert len(every) == len(dict(every)), "two cases have one name"
        return dict(sorted(every, key=lambda pair: (pair[1].last, pair[0])))

    def boot(self, boot: Boot) -> Path:
        out = self.folder / f"{boot.name}-{self.times[boot.name]}"
        scripts = out / "cases"
        scripts.mkdir(parents=True)
        cases = {name: case for name, case in self.cases().items() if case.boot == boot}
        files = [f"{scripts}=/cases"]
        for name, case in cases.items():
            (scripts / name).write_text(case.script)
            # Several may need one file.
            files += [file for file in case.files(self.request) if file not in files]
        (kernel,) = {case.kernel for case in cases.values()}
        done = self.guest(
            "".join(CASE.format(name=name) for name in cases),
            out,
            timeout=sum(case.seconds for case in cases.values()),
            add=files,
            memory=boot.memory,
            single=boot.single,
            kernel=self.image(kernel),
        )
        (out / ".console").write_text(done.stdout + done.stderr)
        return out
