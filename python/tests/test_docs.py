# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The pages: each link leads somewhere, and each path of the tree that is named exists."""

import re
import subprocess
from pathlib import Path

import pytest
import support

PAGES = sorted(
    page.relative_to(support.ROOT)
    for pattern in ("*.md", "docs/**/*.md", "schemata/*/README.md")
    for page in support.ROOT.glob(pattern)
)
FOLDERS = "crates|runtime|python|tests|scripts|docs|bench|schemata|examples|fuzz|packaging"
# A capital word in a path is for the reader to fill in: schemata/NAME/README.md
PATH = re.compile(rf"`((?:{FOLDERS})/[a-z0-9_./*-]*[a-z0-9_/*-])`")
LINK = re.compile(r"\]\(([^)\s]+)\)|^\[[^\]]+\]: (\S+)$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """As GitHub names the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings
    }


def text_of(page: Path) -> str:
    """Without code blocks, which show what a reader would see or type elsewhere."""
    text = re.sub(r"^```.*?^```", "", (support.ROOT / page).read_text(), flags=re.M | re.S)
    return re.sub(r"(?<=\n\n)(?: {4}.*\n|\n(?= {4}))+", "", text)


def dead_link(page: Path, target: str) -> bool:
    if target.startswith(("https://", "http://")):
        return False
    name, _, anchor = target.partition("#")
    file = (support.ROOT / page).parent / name if name else support.ROOT / page
    return not file.exists() or bool(anchor and anchor not in anchors(file))


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_somewhere(page: Path) -> None:
    targets = [a or b for a, b in LINK.findall(text_of(page))]
    assert [target for target in targets if dead_link(page, target)] == []


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_paths_exist(page: Path) -> None:
    named = PATH.findall(text_of(page))
    assert [path for path in named if not list(support.ROOT.glob(path.rstrip("/")))] == []


def pages_named_by_the_product() -> list[tuple[str, str]]:
    """File and page: of messages and help, and of comments beside them."""
    folders = ("crates/*/src", "python/klogger", "runtime", "scripts", "packaging")
    files = [f for folder in folders for f in support.ROOT.glob(f"{folder}/**/*") if f.is_file()]
    texts = {file: file.read_text(errors="replace") for file in files if file.suffix != ".pyc"}
    return [
        (str(file.relative_to(support.ROOT)), page)
        for file, text in texts.items()
        for page in re.findall(r"\bdocs/[a-z-]+\.md\b", text)
    ]


def test_pages_that_messages_name_exist() -> None:
    named = pages_named_by_the_product()
    assert len(named) > 20
    assert [(file, page) for file, page in named if not (support.ROOT / page).exists()] == []


def test_architecture_names_enough_paths() -> None:
    """The pattern finds them: a test of nothing would pass as well."""
    assert len(PATH.findall(text_of(Path("ARCHITECTURE.md")))) > 20
    assert len(PATH.findall(text_of(Path("docs/adding.md")))) > 30
    assert dead_link(Path("README.md"), "docs/no-such-page.md")
    assert dead_link(Path("README.md"), "docs/loss.md#no-such-heading")
    assert not dead_link(Path("docs/exports.md"), "language/decodings.md#names-of-data")


def test_every_page_is_reached_from_the_readme() -> None:
    reached, waiting = set(), [Path("README.md")]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        for target in (a or b for a, b in LINK.findall(text_of(page))):
            file = (support.ROOT / page).parent / target.partition("#")[0]
            if not target.startswith("http") and file.exists():
                waiting.append(file.resolve().relative_to(support.ROOT))
    assert {page for page in PAGES if page.parts[0] != "schemata"} - reached == set()


def test_columns_finds_long_lines(tmp_path: Path) -> None:
    long, short = tmp_path / "long.md", tmp_path / "short.md"
    long.write_text("x" * 101 + "\n" + "\t" * 13 + "\n")
    short.write_text("x" * 100 + "\n[link](https://example.org/" + "x" * 100 + ")\n")
    command = [support.ROOT / "scripts" / "columns", long, short]
    found = subprocess.run(
        ["python3", *command], cwd=support.ROOT, capture_output=True, text=True, check=False
    )
    assert found.returncode == 1
    assert found.stdout.splitlines() == [f"{long}:1: 101 columns", f"{long}:2: 104 columns"]
