# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Outputs in folders of others: no link, file or folder that somebody else has put there is
written through, and nothing but `klogger.outputs` opens an output by its path.
"""

from __future__ import annotations

import ast
import os
import re
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from klogger import export, outputs
from klogger.failure import Failure

HERE = Path(__file__).resolve().parents[1]
STRANGER = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="files of two users")

# What writes, by the name of the function that is called.
WRITING = {
    "write_text", "write_bytes", "mkdir", "makedirs", "rename", "renames", "rmtree", "unlink",
    "rmdir", "remove", "symlink_to", "touch", "link", "mkfifo", "copyfile", "copy2",
    "savefig", "save", "write_parquet", "write_csv", "to_csv", "to_parquet", "chmod",
    "write_history_file", "mkstemp", "copytree", "truncate",
}  # fmt: skip
# Where such calls stand, and why they reach no file of somebody else.
PRIVATE = "in a new folder with a random name, which only this user can write"
ALLOWED = {
    "klogger/outputs.py": "the module itself",
    "klogger/paths.py": "folders, for `outputs`",
    "klogger/cli/__init__.py": "the standard streams, and /dev/null in their place",
    "klogger/smalllog.py": PRIVATE,
    "klogger/expectation.py": PRIVATE,
    "klogger/dataset/write.py": PRIVATE,
    "klogger/dataset/compact.py": PRIVATE,
    "klogger/dataset/cache.py": PRIVATE,
    "klogger/dataset/query.py": PRIVATE,
    "klogger/dataset/engine.py": PRIVATE,
    "klogger/dataset/fleet.py": PRIVATE,
    "klogger/dataset/__init__.py": PRIVATE,
    "klogger/executors/spark.py": PRIVATE,
    "klogger/dataset/store.py": "the folder of what is being written is this user's own",
    "klogger/log.py": PRIVATE,
    "klogger/spans.py": PRIVATE,
    "klogger/prompt.py": "in a folder that only this user can write",
    "klogger/cli/sql.py": "to the place that outputs.scratch has made",
    "klogger_lab/bench/loop.py": PRIVATE,
    "klogger_lab/bench/rate.py": PRIVATE,
    "klogger_lab/bench/cost.py": PRIVATE,
    "klogger_lab/build.py": "in the cache, which outputs.own_folder has looked at",
    "klogger_lab/cli/guest.py": PRIVATE,
    "klogger_lab/cli/stopwatch.py": PRIVATE,
    "klogger_lab/cli/top.py": "/dev/null, in the place of a pipe that nobody reads",
    "klogger_lab/cluster.py": PRIVATE,
    "klogger_lab/collect/collection.py": PRIVATE,
    "klogger_lab/collect/fetch.py": "in the folder of --to, which outputs.folder has looked at",
    "klogger_lab/collect/host.py": PRIVATE,
    "klogger_lab/disk.py": PRIVATE,
    "klogger_lab/guest/kernels.py": PRIVATE,
    "klogger_lab/guest/machine.py": PRIVATE,
    "klogger_lab/launched.py": PRIVATE,
    "klogger_lab/recorder.py": "messages of the recorder, beside its log or in a private folder",
    "klogger_lab/study/recording.py": "beside a study's logs, in a folder that it has made",
    "klogger_lab/study/runner.py": PRIVATE,
    "klogger_lab/top/guard.py": PRIVATE,
    "klogger_lab/top/window.py": PRIVATE,
    "klogger_lab/stopwatch/live.py": PRIVATE,
}


def writes(node: ast.AST) -> bool:
    """Whether it makes, changes or removes a file by its path."""
    if isinstance(node, (ast.Constant, ast.JoinedStr)):
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        text = "".join(str(p.value) for p in parts if isinstance(p, ast.Constant))
        return bool(re.match(r"COPY\b.* TO ", text, re.DOTALL))
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    owner = called.value if isinstance(called, ast.Attribute) else None
    if name == "open":
        modes = [a.value for a in [*node.args, *(k.value for k in node.keywords)]
                 if isinstance(a, ast.Constant) and isinstance(a.value, str)]  # fmt: skip
        flags = any(isinstance(n, ast.Attribute) and n.attr in ("O_WRONLY", "O_RDWR", "O_CREAT")
                    for n in ast.walk(node))  # fmt: skip
        return flags or any(set(mode) <= set("rwaxbt+") and set(mode) & set("wax+")
                            for mode in modes)  # fmt: skip
    if name == "replace":
        # Of a file, and not of a text, a dataclass or a time.
        return (isinstance(owner, ast.Name) and owner.id == "os") or (
            len(node.args) == 1 and not node.keywords and isinstance(owner, (ast.Call, ast.Name))
        )
    by_module = isinstance(owner, ast.Name) and owner.id in ("outputs", "dataset", "self")
    return name in WRITING and owner is not None and not by_module


def users() -> Iterator[tuple[str, int, str]]:
    for package in ("klogger", "klogger_lab"):
        for file in sorted((HERE / package).rglob("*.py")):
            text = file.read_text()
            for node in ast.walk(ast.parse(text)):
                if writes(node):
                    line = getattr(node, "lineno", 0)
                    yield str(file.relative_to(HERE)), line, text.splitlines()[line - 1].strip()


def test_outputs_are_opened_in_one_module() -> None:
    others = [one for one in users() if one[0] not in ALLOWED]
    assert others == []


def test_no_exception_is_left_over() -> None:
    assert set(ALLOWED) - {file for file, _, _ in users()} == set()


def test_a_file_is_whole_or_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "out"
    outputs.write(file, b"first")
    file.chmod(0o640)
    with pytest.raises(ValueError, match="half way"), outputs.created(file) as out:
        out.write(b"second")
        raise ValueError("half way")
    assert file.read_bytes() == b"first"
    outputs.write(file, b"second")
    assert file.read_bytes() == b"second"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    with outputs.scratch(file) as place:
        place.write_bytes(b"third")
    assert file.read_bytes() == b"third"
    assert os.listdir(file.parent) == ["out"]


def test_a_link_of_the_caller_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "out").symlink_to("link/there")
    outputs.write(tmp_path / "out", b"1")
    assert (tmp_path / "real" / "there").read_bytes() == b"1"
    assert (tmp_path / "out").is_symlink()
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(Failure, match="Too many levels of symbolic links"):
        outputs.write(tmp_path / "round", b"1")


def test_devices_pipes_and_descriptors_are_written_as_they_are(tmp_path: Path) -> None:
    outputs.write("/dev/null", b"1")
    with outputs.scratch("/dev/null") as place:
        place.write_bytes(b"1")
    with pytest.raises(Failure, match="cannot write /dev/full: No space left on device"):
        outputs.write("/dev/full", b"1")
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(fifo.read_bytes()))
    reader.start()
    outputs.write(fifo, b"through it")
    reader.join()
    assert read == [b"through it"]
    code = (
        "from klogger import outputs; print('a', flush=True);"
        " outputs.write('/dev/stdout', b'b\\n');"
        " f = outputs.continued('/dev/fd/1', append=False); print('c', file=f); f.close()"
    )
    with (tmp_path / "all").open("wb") as file:
        subprocess.run([sys.executable, "-c", code], stdout=file, check=True)
    assert (tmp_path / "all").read_text() == "a\nb\nc\n"


def test_what_others_read_meanwhile_keeps_its_place(tmp_path: Path) -> None:
    file = tmp_path / "out"
    for append, expected in ((True, "1"), (True, "11"), (False, "1")):
        with outputs.continued(file, append=append) as out:
            out.write("1")
        assert file.read_text() == expected


def test_what_cannot_be_written_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path, why in (
        (tmp_path, "Is a directory"),
        (tmp_path / "file" / "out", "Not a directory"),
        (tmp_path / ("n" * 300), "File name too long"),
    ):
        with pytest.raises(Failure) as caught:
            outputs.write(path, b"1")
        assert caught.value.message == f"cannot write {path}: {why}"


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder that all can write, with a victim beside it."""
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    return tmp_path / "shared"


def stranger(link: Path, to: Path) -> Path:
    link.symlink_to(to)
    os.lchown(link, STRANGER, STRANGER)
    return link


@needs_root
def test_links_of_others_are_refused(shared: Path) -> None:
    victim = shared.parent / "victim"
    out = stranger(shared / "out", victim)
    way = stranger(shared / "way", shared.parent)
    for path in (out, way / "victim", way / "new" / "er" / "out"):
        for work in (
            lambda path: outputs.write(path, b"evil"),
            lambda path: outputs.continued(path, append=True),
            lambda path: outputs.continued(path, append=False),
            lambda path: outputs.scratch(path).__enter__(),
            outputs.folder,
            outputs.own_folder,
        ):
            with pytest.raises(Failure, match="is a link of user"):
                work(path)
    assert victim.read_text() == "precious"
    assert sorted(os.listdir(shared.parent)) == ["shared", "victim"]


@needs_root
def test_files_and_folders_of_others_are_refused(shared: Path) -> None:
    (shared / "out").write_text("theirs")
    os.mkfifo(shared / "fifo")
    (shared / "folder").mkdir()
    for name in ("out", "fifo", "folder"):
        os.chown(shared / name, STRANGER, STRANGER)
    for name in ("out", "fifo"):
        with pytest.raises(Failure, match="it belongs to user"):
            outputs.write(shared / name, b"evil")
    assert (shared / "out").read_text() == "theirs"
    with pytest.raises(Failure, match="it belongs to user"):
        outputs.folder(shared / "folder")
    # A file of one's own in it is no harm.
    outputs.write(shared / "folder" / "mine", b"1")
    assert (shared / "folder" / "mine").stat().st_uid == 0
    outputs.own_folder(shared / "mine").chmod(0o777)
    with pytest.raises(Failure, match="other users can write it"):
        outputs.own_folder(shared / "mine")


@needs_root
def test_who_calls_sudo_has_his_own_links_and_files(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shared / "real").mkdir()
    stranger(shared / "way", shared / "real")
    out = shared / "real" / "out"
    out.write_text("old")
    out.chmod(0o640)
    os.chown(out, STRANGER, STRANGER)
    with pytest.raises(Failure, match="is a link of user"):
        outputs.write(shared / "way" / "out", b"1")
    monkeypatch.setenv("SUDO_UID", str(STRANGER))
    outputs.write(shared / "way" / "out", b"1")
    found = out.stat()
    assert (out.read_bytes(), found.st_uid, found.st_gid) == (b"1", STRANGER, STRANGER)
    assert stat.S_IMODE(found.st_mode) == 0o640


@needs_root
def test_tables_that_somebody_else_made_are_not_believed(shared: Path) -> None:
    tables = shared / "x.klog-parquet"
    assert export.strange(tables) == ""
    tables.mkdir()
    assert export.strange(tables) == ""
    os.chown(tables, STRANGER, STRANGER)
    assert "it belongs to user" in export.strange(tables)
    tables.rmdir()
    stranger(tables, shared.parent)
    assert "it is behind a link of user" in export.strange(tables)
    tables.unlink()
    tables.write_text("")
    assert export.strange(tables) == "Not a directory"


@needs_root
def test_a_removed_folder_is_not_followed(shared: Path) -> None:
    (shared / "folder").mkdir()
    stranger(shared / "folder" / "link", shared.parent)
    outputs.remove_folder(shared / "folder")
    outputs.remove(stranger(shared / "link", shared.parent / "victim"))
    outputs.remove(shared / "link")
    assert os.listdir(shared) == []
    assert (shared.parent / "victim").read_text() == "precious"
