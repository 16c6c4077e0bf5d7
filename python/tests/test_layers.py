# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The order of the Python modules: each knows only those below its own, and `klogger` does not know
`klogger_lab`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parents[1]
# From the lowest on. A module may import those of its own layer, and of the layers before it.
LAYERS = [
    {
        "failure",
        "extras",
        "paths",
        "sources",
        "outputs",
        "durations",
        "numerals",
        "units",
        "sqltext",
        "sqlerror",
        "program",
        "export",
        "prompt",
        "columns",
        "histograms",
        "folder",
        "collected",
        "curves",
        "made",
        "opening",
        "waiting",
        "deadlines",
        "devices",
    },
    {
        "costs",
        "decodings",
        "prelude",
        "gaps",
        "happened",
        "identity",
        "log",
        "folders",
        "analysis",
        "rules",
        "smalllog",
        "expectation",
        "ledger",
        "losses",
        "catalogue",
        "statements",
        "spans",
        "cpu_spans",
        "derived",
    },
    {
        "executor",
        "general",
        "checking",
        "findings",
        "summary",
        "stopwatch",
        "timeline",
        "remarks",
        "trimmed",
        "waterfall",
    },
    {"drawing", "ends", "pictures", "vega", "png"},
    {"document", "flame", "sections", "html", "figure", "tables", "terminal", "waterfall_text"},
    {"screen"},
    {"answers", "compare", "dataset", "executors", "why"},
    {"claims"},
    {"cli"},
]
# A log answers a notebook with reports, which stand on logs: imported when they are asked for.
UPWARDS = {
    ("log", "answers"),
    ("log", "executor"),
    ("log", "summary"),
    ("answers", "cli"),
}
# The same of `klogger_lab`. Those in the middle know nothing of each other.
COMMON = {"launched", "recorder", "tracefs", "machine", "build", "signals", "disk", "fiemap"}
EXPERIMENTS = {
    "bench", "cluster", "collect", "guest", "mcp", "stopwatch", "study", "top", "watch",
}  # fmt: skip
# Methods of all named tuples; what Spark gives to Python in no other way; and how a process ends
# at once, with or without its exit handlers, as Python's multiprocessing has it.
WELL_KNOWN = ("_asdict", "_replace", "_jsc", "_jsparkSession", "_exit", "_run_exitfuncs")
# One program that ends as another does: `klogger stopwatch --html` is the report's page.
PROGRAMS_OF_PROGRAMS = {("klogger_lab.cli.stopwatch", "klogger.cli.report")}


def modules(package: str) -> list[Path]:
    return sorted((HERE / package).rglob("*.py"))


def part(module: str) -> str:
    """Of `klogger.compare.page`: `compare`."""
    return [*module.split("."), ""][1]


def imported(file: Path) -> Iterator[tuple[str, list[str]]]:
    """Each module that is imported, and the names that are taken from it."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from ((name.name, []) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: a relative import"
            yield str(node.module), [name.name for name in node.names]


def known(file: Path, package: str) -> set[str]:
    """The parts of a package that a file imports."""
    found = set()
    for module, names in imported(file):
        if module == package:
            found |= {n for n in names if (HERE / package / n).with_suffix(".py").is_file()}
            found |= {n for n in names if (HERE / package / n).is_dir()}
        elif module.startswith(f"{package}."):
            found.add(part(module))
    return found


def test_every_module_has_a_layer() -> None:
    parts = {
        f.relative_to(HERE / "klogger").parts[0].removesuffix(".py") for f in modules("klogger")
    }
    assert parts - {"__init__"} == set().union(*LAYERS)
    assert sum(map(len, LAYERS)) == len(set().union(*LAYERS))


def test_no_import_runs_up() -> None:
    up = set()
    for file in modules("klogger"):
        own = file.relative_to(HERE / "klogger").parts[0].removesuffix(".py")
        # What `klogger` itself gives to notebooks.
        if own != "__init__":
            below = next(i for i, layer in enumerate(LAYERS) if own in layer)
            allowed = set().union(*LAYERS[: below + 1], {"__init__"})
            up |= {(own, one) for one in known(file, "klogger") - allowed}
    assert up == UPWARDS


def test_experiments_know_nothing_of_each_other() -> None:
    parts = {
        f.relative_to(HERE / "klogger_lab").parts[0].removesuffix(".py")
        for f in modules("klogger_lab")
    }
    assert parts - {"__init__"} == COMMON | EXPERIMENTS | {"cli"}
    for file in modules("klogger_lab"):
        own = file.relative_to(HERE / "klogger_lab").parts[0].removesuffix(".py")
        allowed = {own, *COMMON, *(EXPERIMENTS if own == "cli" else ())}
        assert known(file, "klogger_lab") <= allowed, file


def test_a_program_takes_nothing_from_another() -> None:
    """What several have in common is in the package itself."""
    taken = set()
    for package in ("klogger", "klogger_lab"):
        for file in modules(f"{package}/cli"):
            own = f"{package}.cli.{file.stem}"
            for module, names in imported(file):
                used = {module} if module.count(".") > 1 else {f"{module}.{n}" for n in names}
                taken |= {(own, one) for one in used & set(map(dotted, programs())) - {own}}
    assert taken == PROGRAMS_OF_PROGRAMS


def programs() -> list[Path]:
    found = [*modules("klogger/cli"), *modules("klogger_lab/cli")]
    return [file for file in found if "\ndef main(" in file.read_text()]


def dotted(file: Path) -> str:
    return ".".join(file.relative_to(HERE).with_suffix("").parts)


def test_the_parts_of_a_comparison_are_its_own() -> None:
    for package in ("klogger", "klogger_lab"):
        for file in modules(package):
            inside = [m for m, _ in imported(file) if m.startswith("klogger.compare.")]
            assert not inside or file.parent.name in ("compare", "cli"), (file, inside)


def test_two_modules_lay_out_what_a_terminal_shows() -> None:
    """Tables, colours and widths; what they are made of is rich's. The screen of `klogger top` is
    textual's, which takes rich's texts.
    """
    users = {
        dotted(file)
        for package in ("klogger", "klogger_lab")
        for file in modules(package)
        if any(m.split(".")[0] == "rich" for m, _ in imported(file)) or "\\x1b[" in file.read_text()
    }
    screen = {"klogger_lab.top.panels", "klogger_lab.top.screen"}
    assert users == {"klogger.tables", "klogger.terminal"} | screen


def test_analyses_know_nothing_of_experiments() -> None:
    for file in modules("klogger"):
        assert not [m for m, _ in imported(file) if m.split(".")[0] == "klogger_lab"], file


@pytest.mark.parametrize("package", ["klogger", "klogger_lab"])
def test_no_module_uses_what_is_private(package: str) -> None:
    for file in modules(package):
        for module, names in imported(file):
            if module.startswith("klogger"):
                assert not [n for n in names if n.startswith("_")], (file, module)
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute) and re.match("_[^_]", node.attr):
                owner = node.value.id if isinstance(node.value, ast.Name) else ""
                known_well = owner in ("self", "cls") or node.attr in WELL_KNOWN
                assert known_well, (file, node.lineno, node.attr)


def test_one_module_runs_the_recorder() -> None:
    """And one finds out where it is; both read what it says as JSON."""
    users = {
        str(f.relative_to(HERE))
        for package in ("klogger", "klogger_lab")
        for f in modules(package)
        if '"record"' in f.read_text()
    }
    # A tool of agents has this name, and a table of what they may do.
    users -= {f"klogger_lab/mcp/{name}.py" for name in ("allowed", "server", "tools")}
    # The guest's command line is run by QEMU.
    assert users == {"klogger_lab/recorder.py", "klogger_lab/cli/guest.py"}
