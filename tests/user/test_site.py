# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`make site`: no link is dead, and nothing is loaded from elsewhere."""

import html.parser
import os
import subprocess
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[2]


class Links(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids |= {given[name] or "" for name in ("id", "name") if name in given}
        for name in ("href", "src"):
            if to := given.get(name):
                self.links.append(to)
                if tag in ("script", "img", "link", "iframe"):
                    self.loaded.append(to)


def links_of(page: Path) -> Links:
    found = Links()
    found.feed(page.read_text())
    return found


def dead(of: Path, to: str, every: dict[Path, Links]) -> bool:
    parts = urlsplit(to)
    if parts.scheme:
        return False
    path = (of.parent / unquote(parts.path)).resolve() if parts.path else of
    if path.is_dir():
        path /= "index.html"
    if not path.exists():
        return True
    anchor = unquote(parts.fragment)
    return bool(anchor) and path in every and anchor not in every[path].ids


@pytest.mark.full("it downloads mkdocs")
def test_no_link_of_the_site_is_dead(klogger: Path, tmp_path: Path) -> None:
    words = [ROOT / "scripts/site", tmp_path / "site"]
    done = subprocess.run(
        words, env={**os.environ, "KLOGGER": str(klogger)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    root = (tmp_path / "site").resolve()
    every = {page: links_of(page) for page in root.rglob("*.html") if page.name != "404.html"}
    assert len(every) > 100
    links = [(page, to) for page, found in every.items() for to in found.links]
    assert len(links) > 5000
    assert [(page.name, to) for page, to in links if dead(page, to, every)] == []
    assert dead(root / "index.html", "docs/no-such-page.html", every)
    assert dead(root / "index.html", "docs/loss.html#no-such-heading", every)
    # Nothing comes from elsewhere when a page is opened.
    loaded = {to for found in every.values() for to in found.loaded if urlsplit(to).scheme}
    assert loaded == set()
    assert "klogger why" in (root / "search/search_index.json").read_text()
    events = every[root / "schemata/futex/index.html"].ids
    assert {"wait", "waited", "woke"} <= events
