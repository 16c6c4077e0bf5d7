# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The pages of the site, before mkdocs has them. tests/user/test_site.py builds it."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import support

FOLDER = support.ROOT / "packaging" / "site"


@pytest.fixture(scope="module")
def pages() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pages", FOLDER / "pages.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_navigation_is_the_list_of_the_readme(pages: ModuleType) -> None:
    readme = (
        "# x\n\n## Documentation\n\nUse it:\n\n- [docs/why.md](docs/why.md): [a](docs/loss.md)\n"
    )
    readme += "- [schemata](schemata): each\n\nTrust it:\n\n- [docs/loss.md](docs/loss.md),\n"
    found = pages.navigation(
        readme + "  [docs/why.md](docs/why.md): both\n\n## Limits\n- [a](b.md)\n"
    )
    assert [list(section) for section in found] == [["Use it"], ["Trust it"]]
    assert [list(page.values()) for page in found[0]["Use it"]] == [["docs/why.md"]]
    assert [list(page.values()) for page in found[1]["Trust it"]] == [["docs/loss.md"]]
    assert not next(iter(found[0]["Use it"][0])).startswith("#")


def test_all_pages_of_the_readme_are_in_the_navigation(pages: ModuleType) -> None:
    readme = (support.ROOT / "README.md").read_text()
    listed = [
        page for s in pages.navigation(readme) for e in s.values() for p in e for page in p.values()
    ]
    assert len(listed) > 30
    assert [page for page in listed if not (support.ROOT / page).is_file()] == []


def test_links_to_folders_and_files(pages: ModuleType, tmp_path: Path) -> None:
    text = (
        "[a](../schemata) [b](loss.md#x) ![c](quanta.png) [d](https://example.org/x)\n\n"
        "    [in code](../schemata)\n"
    )
    done = pages.linked(text, Path("docs/x.md"), tmp_path)
    assert done == text.replace("[a](../schemata)", "[a](../schemata/README.md)")
    copied = [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()]
    assert copied == [Path("docs/quanta.png")]


def test_a_man_page_is_below_the_title_of_its_page(pages: ModuleType) -> None:
    page = '<div class="head"><span>a(1)</span></div>\n<h1 class="Sh">NAME</h1>\n<h2>B</h2>\n'
    page += '<table class="foot">\n<tr></tr>\n</table>\n'
    assert pages.below_a_title(page) == '<h2 class="Sh">NAME</h2>\n<h3>B</h3>\n'
