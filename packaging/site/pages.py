# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Puts the pages of the site together, for mkdocs: pages.py KLOGGER MANUAL FOLDER.

The pages of the checkout keep their places, so that their links lead where they do there. What they
link to goes with them. Added are a page for each command, which is its man page in MANUAL, the
events of each schema as the program KLOGGER shows them, and lists of schemata and examples. The
navigation is the list of the README. FOLDER gets `pages` and `mkdocs.yml`.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PATTERNS = ("*.md", "docs/**/*.md", "schemata/*/README.md", "tests/README.md")
LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
CODE = re.compile(r"^```[\s\S]*?^```\n|(?<=\n\n)(?: {4}.*\n|\n(?= {4}))+", re.M)

# How mkdocs reads Markdown, and what of it is a fault.
MARKDOWN = ["tables", "fenced_code", "attr_list", "md_in_html", {"toc": {"permalink": True}}]
CHECKS = {
    "nav": {"omitted_files": "ignore", "not_found": "warn", "absolute_links": "warn"},
    "links": {
        "not_found": "warn", "absolute_links": "warn", "unrecognized_links": "warn",
        "anchors": "warn",
    },
}  # fmt: skip


def main() -> int:
    klogger, manual, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    pages = folder / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    schemata = told(klogger, "list")
    write(pages / "schemata/README.md", index_of(schemata))
    write(pages / "examples/README.md", examples())
    commands = [write_command(page, pages) for page in sorted(manual.glob("man1/*.1"))]
    for page in sources():
        text = page.read_text()
        name = page.relative_to(ROOT)
        if name.match("schemata/*/README.md"):
            text += "\n" + events_of(told(klogger, "show", name.parts[1]))
        write(pages / name, linked(text, name, pages))
    (folder / "mkdocs.yml").write_text(json.dumps(config(schemata, commands), indent=1))
    return 0


def sources() -> list[Path]:
    return sorted(page for pattern in PATTERNS for page in ROOT.glob(pattern))


def told(klogger: str, *words: str) -> Any:
    done = subprocess.run([klogger, *words, "--format", "json"], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def linked(text: str, name: Path, pages: Path) -> str:
    """The text of a page, with links to folders as links to their pages. Files that are linked and
    are no pages are copied.
    """

    def target(link: re.Match[str]) -> str:
        before, to, behind = link.groups()
        if "://" in to:
            return link[0]
        path = (ROOT / name).parent / to
        if path.is_dir():
            return f"{before}{to.rstrip('/')}/README.md{behind}"
        if path.suffix != ".md" and path.is_file():
            copy = pages / path.resolve().relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
        return link[0]

    # What is in blocks of code is no link.
    parts = CODE.split(text)
    blocks = CODE.findall(text)
    done = [LINK.sub(target, part) for part in parts]
    return "".join(a + b for a, b in zip(done, [*blocks, ""], strict=True))


def index_of(schemata: list[dict[str, Any]]) -> str:
    rows = "".join(
        f"| [{one['name']}]({one['name']}/README.md) | {cell(one['doc'])} |\n" for one in schemata
    )
    return (
        "# Schemata\n\nThose that klogger brings. `klogger record -s NAME -- COMMAND` records with"
        f" one, and `klogger report` answers its questions.\n\n| schema | asks |\n|---|---|\n{rows}"
    )


def examples() -> str:
    """The files of the folder, each as it is."""
    text = "# Examples\n"
    for path in sorted((ROOT / "examples").glob("*.klogger")):
        text += f"\n## {path.name}\n\n```c\n{path.read_text()}```\n"
    return text


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def events_of(schema: dict[str, Any]) -> str:
    """Its events and their fields, as tables."""
    text = "## All events\n"
    for event in schema["events"]:
        text += f"\n### {event['name']}\n\n{cell(event.get('doc') or '')}\n"
        if event["fields"]:
            text += "\n| field | type | shown as | |\n|---|---|---|---|\n"
        for field in event["fields"]:
            shown = field.get("decode") or field.get("unit") or ""
            text += (
                f"| `{field['name']}` | {cell(str(field['type']))} | {cell(str(shown))}"
                f" | {cell(field.get('doc') or '')} |\n"
            )
    return text


def write_command(page: Path, pages: Path) -> str:
    """A man page as a page of the site; the name of the command."""
    name = page.stem
    done = subprocess.run(
        ["mandoc", "-T", "html", "-O", "fragment", page], stdout=subprocess.PIPE, text=True,
        check=True,
    )  # fmt: skip
    title = name.replace("-", " ", 1)
    write(pages / "commands" / f"{name}.md", f"# {title}\n\n{below_a_title(done.stdout)}")
    return name


def below_a_title(html: str) -> str:
    """Without the first and the last line of a man page, and with headings one level lower."""
    html = re.sub(r'<(table|div) class="(head|foot)".*?</\1>\n?', "", html, flags=re.S)
    return re.sub(r"(</?h)([12])\b", lambda tag: f"{tag[1]}{int(tag[2]) + 1}", html)


def config(schemata: list[dict[str, Any]], commands: list[str]) -> dict[str, Any]:
    return {
        "site_name": "klogger",
        "site_url": "",
        "docs_dir": "pages",
        "site_dir": "html",
        "use_directory_urls": False,
        "theme": {"name": "material", "font": False, "features": ["navigation.footer"]},
        "plugins": ["search"],
        "markdown_extensions": MARKDOWN,
        "validation": CHECKS,
        "nav": [
            {"klogger": "README.md"},
            *navigation((ROOT / "README.md").read_text()),
            {"Schemata": [
                {"All": "schemata/README.md"},
                *({one["name"]: f"schemata/{one['name']}/README.md"} for one in schemata),
            ]},
            {"Language": [
                {page.stem: str(page.relative_to(ROOT))}
                for page in sorted(ROOT.glob("docs/language/*.md"))
            ]},
            {"Commands": [{name.replace("-", " ", 1): f"commands/{name}.md"} for name in commands]},
        ],
    }  # fmt: skip


def navigation(readme: str) -> list[dict[str, list[dict[str, str]]]]:
    """The pages that the README lists, below 'Use it:', 'Trust it:', 'Change it:'."""
    found: list[dict[str, list[dict[str, str]]]] = []
    listed = readme.partition("\n## Documentation\n")[2].partition("\n## ")[0]
    for line in listed.splitlines():
        if section := re.fullmatch(r"([A-Z][a-z ]+):", line):
            found.append({section[1]: []})
        elif line.startswith("- "):
            entries = next(iter(found[-1].values()))
            for page in re.findall(r"\]\(([^)]+\.md)\)", line.partition("):")[0] + ")"):
                entries.append({title_of(page): page})
    return found


def title_of(page: str) -> str:
    heading = re.search(r"^# (.+)$", (ROOT / page).read_text(), re.M)
    return heading[1].replace("`", "") if heading else page


if __name__ == "__main__":
    sys.exit(main())
