# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The example notebooks, run as their readers run them, on a small log and a small dataset."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import support

from klogger import dataset

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

DOCS = support.ROOT / "docs"
# Seconds. A busy machine takes its time to start a kernel.
STARTUP, CELL = 240, 240


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No history, and no connection file, in the user's own folders."""
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))


def executed(name: str, parameter: str, value: Path, folder: Path) -> list[list[Any]]:
    """What each of its cells of code shows. The first has the parameter."""
    book = nbformat.read(DOCS / name, as_version=4)
    cells = [c for c in book.cells if c.cell_type == "code"]
    assert cells[0].source == parameter
    cells[0].source = f"{parameter.split(maxsplit=1)[0]} = {str(value)!r}"
    client = nbclient.NotebookClient(
        book,
        kernel_name="python3",
        timeout=CELL,
        startup_timeout=STARTUP,
        resources={"metadata": {"path": folder}},
    )
    client.execute()
    shown = [list(c.outputs) for c in cells]
    assert not [o for some in shown for o in some if o.output_type in ("error", "stream")]
    return shown


@pytest.mark.full("starts a kernel of Jupyter: 5 s")
def test_notebook_of_a_log(small_log: Path, tmp_path: Path) -> None:
    shown = executed("example.ipynb", 'LOG = "x.klog"', small_log, tmp_path)
    analyses, answers, table, chart = (shown[n][-1].data for n in (1, 3, 4, 7))
    assert "'quanta': 'How long does a program run" in analyses["text/plain"]
    assert answers["text/html"].count("<svg") == 2
    assert "hog" in table["text/html"]
    assert "<svg" in chart["image/svg+xml"]
    assert (tmp_path / "x.html").read_text().startswith("<!doctype html>")


@pytest.mark.full("starts a kernel of Jupyter: 4 s")
def test_notebook_of_a_dataset(small_log: Path, tmp_path: Path) -> None:
    into = dataset.open(tmp_path / "a dataset", create=True)
    log = shutil.copytree(small_log, tmp_path / "small.klog-parquet")
    meta = json.loads((log / "meta.json").read_text())
    for number, host in enumerate(("web1", "web2")):
        meta["preamble"]["clock"]["start_realtime_ns"] += 10**6 * number
        meta["preamble"]["host"]["name"] = host
        (log / "meta.json").write_text(json.dumps(meta))
        into.add(log)
    shown = executed("fleet.ipynb", 'DATASET = "runs"', Path(into.where), tmp_path)
    recordings, programs, chart = (some[-1].data for some in shown[1:])
    for host in ("web1", "web2"):
        assert host in recordings["text/plain"]
    # The next SCHEDIN of the CPU is 80 or 240 µs later; after the last of each CPU there is none.
    rows = [line.split()[1:] for line in programs["text/plain"].splitlines()[1:]]
    wanted = [["hog", "20", "80000"], ["find", "18", "240000"]]
    assert rows == [[host, *row] for host in ("web1", "web2") for row in wanted]
    assert all(text in chart["image/svg+xml"] for text in ("web1", "web2", "99 of 100 quanta"))


@pytest.mark.parametrize("name", ["example.ipynb", "fleet.ipynb"])
def test_notebooks_are_kept_without_outputs(name: str) -> None:
    book = nbformat.read(DOCS / name, as_version=4)
    assert all(
        c.outputs == [] and c.execution_count is None for c in book.cells if c.cell_type == "code"
    )
