# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The fast path through a function of a kernel module: what is executed when static branches go
as told, and all is as usual, so that nothing is called and no conditional branch is taken, or else
as few as possible.
"""

import re
import subprocess
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path


@dataclass(frozen=True)
class Instruction:
    offset: int  # in the function
    text: str
    static_branch: bool = False
    taken: bool = False  # a conditional branch that is taken

    def __str__(self) -> str:
        note = "  # static branch" if self.static_branch else "  # taken" if self.taken else ""
        return f"{self.offset:5x}  {self.text}{note}"


def objdump(module: Path, *options: str) -> str:
    done = subprocess.run(["objdump", *options, module], check=True, capture_output=True, text=True)
    return done.stdout


def static_branches(module: Path) -> dict[int, tuple[int, str]]:
    """Address of each static branch: where it goes when it is on, and the key that decides, as
    symbol+offset.
    """
    sites = {}
    lines = re.findall(
        r"^[0-9a-f]{16} R_X86_64_PC\d+ +(\S+)", objdump(module, "-r", "-j", "__jump_table"), re.M
    )
    for site, target, key in zip(lines[0::3], lines[1::3], lines[2::3], strict=True):
        if all(at.startswith(".text+0x") for at in (site, target)):
            sites[int(site[8:], 16)] = (int(target[8:], 16), key)
    return sites


class Function:
    """A function of a module."""

    def __init__(self, module: Path, name: str):
        self.name = name
        self.sites = static_branches(module)
        self.code = self.read(module)
        order = sorted(self.code)
        if not order:
            raise RuntimeError(f"{module} has no function {name}")
        self.begin = order[0]
        self.next = dict(pairwise(order))

    def read(self, module: Path) -> dict[int, str]:
        """Instructions by address; a jump's or call's target is a symbol where the linker will put
        one in.
        """
        code: dict[int, str] = {}
        inside = False
        for line in objdump(module, "-dr", "--no-show-raw-insn", "-j", ".text").splitlines():
            if line.endswith(">:"):
                inside = line.endswith(f"<{self.name}>:")
            elif inside and (
                symbol := re.match(r"\s+[0-9a-f]+: R_X86_64_P\w+\s+([A-Za-z_]\w*)-0x4", line)
            ):
                last = max(code)
                if code[last].startswith(("call", "jmp")):
                    code[last] = f"{code[last].split()[0]} {symbol[1]}"
            elif inside and (found := re.match(r"\s+([0-9a-f]+):\t(.*\S)", line)):
                code[int(found[1], 16)] = found[2].split("#")[0].strip()
        return code

    def walk(self, at: int, on: str, before: tuple[int, ...] = ()) -> list[Instruction] | None:
        """From the address to the function's return; None if there is a call or a loop."""
        path: list[Instruction] = []
        while at in self.code and at not in before:
            before = (*before, at)
            text, site = self.code[at], self.sites.get(at)
            here = Instruction(at - self.begin, text, static_branch=site is not None)
            path.append(here)
            if text.startswith("ret") or text.endswith(" __x86_return_thunk"):
                return path
            if text.startswith("call"):
                return None
            after = self.next.get(at, -1)
            if site:
                at = site[0] if site[1].startswith(on) else after
            elif text.startswith("jmp"):
                at = int(text.split()[1], 16)
            elif text.startswith("j"):
                rest = self.walk(after, on, before)
                if rest is None:
                    path[-1] = replace(here, taken=True)
                    rest = self.walk(int(text.split()[1], 16), on, before)
                return None if rest is None else path + rest
            else:
                at = after
        return None


def straight(module: Path, name: str, on: str) -> list[Instruction]:
    """Of the function; the branches are on whose keys begin with `on`."""
    function = Function(module, name)
    path = function.walk(function.begin, on)
    if path is None:
        raise RuntimeError(f"{name} has no fast path")
    return path


def code_bytes(listing: str, name: str, offset: int) -> str:
    """Five bytes at the offset, in hexadecimal, of what hits.c tells of the code in memory."""
    line = next(line for line in listing.splitlines() if line.startswith(f"{name} "))
    return " ".join(line.split()[1:][offset : offset + 5])
