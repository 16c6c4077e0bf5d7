# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The examples of the pages of the schema language: each is a complete schema, which a reader can
copy; the kernel accepts its programs.
"""

import json
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = [DOCS / "schema-language.md", *sorted(DOCS.glob("language/*.md"))]
DECLARES = re.compile(
    r"^(schema|event|probe|poll|parameter|include|arch|slice|context|code|enum|flags|state"
    r"|module)\b",
    re.M,
)
# A form, with words for the reader to fill in; and the picture of a record.
FORM = re.compile(r"\b(NAME|TYPE)\b|^ +\+-----", re.M)
# On kernels that allow no probes in functions, this is the whole answer.
NO_FUNCTIONS = "this kernel allows no probes in functions: "
# What `check` says where the module of an example is not loaded; its probes are not there then.
NO_MODULE = re.compile("the kernel module '[a-z0-9_]+' is missing: ")

# What `check` warns of in the example of a member that no kernel has.
LEFT_OUT = "left out on this kernel: C: no member named 'boost' in 'struct task_struct'"


def blocks(page):
    """(section, line, text) of each indented block."""
    section, block, begin = "", [], 0
    for number, line in enumerate([*page.read_text().splitlines(), "end"], 1):
        if line.startswith("    ") or (block and not line):
            begin = begin if block else number
            block.append(line[4:])
            continue
        if block:
            yield section, begin, "\n".join(block).rstrip() + "\n"
        block = []
        section = line.lstrip("# ") if line.startswith("#") else section


EXAMPLES = {
    f"{page.stem}-{line}.klogger": text
    for page in PAGES
    for _, line, text in blocks(page)
    if DECLARES.search(text) and not FORM.search(text)
}


@pytest.mark.full("takes more than 3 s")
def test_examples_are_schemata_that_the_kernel_accepts(recorder, tmp_path: Path):
    for name, text in EXAMPLES.items():
        (tmp_path / name).write_text(text)
    files = [tmp_path / name for name in EXAMPLES]
    done = recorder.command("check", "--load", "--format", "json", *files)
    found = {Path(file["file"]).name: file for file in json.loads(done.out)}
    assert set(found) == set(EXAMPLES)
    for name, file in found.items():
        errors = [d["message"] for d in file["diagnostics"]]
        if "klogger_current()->boost" in EXAMPLES[name]:
            assert errors == [LEFT_OUT] and file["ok"]
            continue
        if any(map(NO_MODULE.match, errors)):
            assert re.search(r"^module ", EXAMPLES[name], re.M), name
        elif errors and all(error.startswith(NO_FUNCTIONS) for error in errors):
            # Each is at a probe of a function; everything before has been checked.
            kinds = re.findall(r"^probe (\w+)", EXAMPLES[name], re.M)
            assert set(kinds) <= {"function", "return"}, name
        else:
            assert not errors and file["ok"], (name, file["diagnostics"])


def test_there_is_an_example_of_each_section():
    every = (block for page in PAGES for block in blocks(page))
    found = {section for section, _, text in every if DECLARES.search(text)}
    wanted = {
        "Functions",
        "Many places",
        "Trace events",
        "User space",
        "What exists",
        "System calls",
        "Timers and samples",
        "Stacks",
        "User stacks",
        "Alternatives",
        "Poll",
        "Parameter",
        "State",
        "Module",
        "Include",
        "Counters",
        "Context",
        "Slice",
        "Roles",
    }
    assert wanted - found == set()
    assert len(EXAMPLES) >= 28
    # Forms are recognised, and not taken for examples.
    assert FORM.search("event NAME {\n    TYPE NAME\n}") and not FORM.search("event A { int b }")
