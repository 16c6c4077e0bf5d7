# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The example notebook, run as its readers run it, on a small log."""

from __future__ import annotations

from pathlib import Path

import pytest
import support

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

NOTEBOOK = support.ROOT / "docs" / "example.ipynb"
# Seconds. A busy machine takes its time to start a kernel.
STARTUP, CELL = 240, 240


def test_notebook_runs(small_log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book = nbformat.read(NOTEBOOK, as_version=4)
    cells = [c for c in book.cells if c.cell_type == "code"]
    assert cells[0].source == 'LOG = "x.klog"'
    cells[0].source = f"LOG = {str(small_log)!r}"
    # No history, and no connection file, in the user's own folders.
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    client = nbclient.NotebookClient(
        book,
        kernel_name="python3",
        timeout=CELL,
        startup_timeout=STARTUP,
        resources={"metadata": {"path": tmp_path}},
    )
    client.execute()
    shown = {i: o for i, c in enumerate(cells) for o in c.outputs}
    assert not [o for o in shown.values() if o.output_type in ("error", "stream")]
    analyses, answers, chart = shown[1], shown[3], shown[7]
    assert "'quanta': 'How long does a program run" in analyses.data["text/plain"]
    assert answers.data["text/html"].count("<svg") == 2
    assert "hog" in shown[4].data["text/html"]
    assert "<svg" in chart.data["image/svg+xml"]
    assert (tmp_path / "x.html").read_text().startswith("<!doctype html>")


def test_notebook_is_kept_without_outputs() -> None:
    book = nbformat.read(NOTEBOOK, as_version=4)
    assert all(
        c.outputs == [] and c.execution_count is None for c in book.cells if c.cell_type == "code"
    )
