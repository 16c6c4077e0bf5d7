# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A small disk of one's own: what is said if it cannot be made, and that nothing stays."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from klogger.failure import Failure
from klogger_lab import disk

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="not root")


def test_a_missing_tool_is_named_with_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "PLACES", str(tmp_path))
    with (
        pytest.raises(Failure, match="there is no losetup") as failed,
        disk.loop_disk(tmp_path / "d", 1, mkfs=["mkfs.ext4"]),
    ):
        pass
    assert failed.value.help == "apt install mount"
    assert not (tmp_path / "d").exists()


def test_a_tool_of_no_known_package_has_no_remedy(tmp_path: Path) -> None:
    with (
        pytest.raises(Failure, match=r"there is no mkfs\.nothing") as failed,
        disk.loop_disk(tmp_path / "d", 1, mkfs=["mkfs.nothing"]),
    ):
        pass
    assert failed.value.help is None


def test_what_a_tool_complains_about_is_in_the_failure(tmp_path: Path) -> None:
    with pytest.raises(Failure, match=r"umount .*/nowhere: "):
        disk.run("umount", tmp_path / "nowhere")


def test_a_number_is_that_of_logs_and_its_text_that_of_people() -> None:
    made = disk.Disk(Path("/dev/loop3"), 7 << 20 | 3, Path("x.img"), None)
    assert (made.name, made.text) == ("loop3", "7:3")


def loops() -> set[str]:
    listed = subprocess.run(
        ["losetup", "--list", "--noheadings", "--output", "BACK-FILE"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return {line.split(" (deleted)")[0].strip() for line in listed.stdout.splitlines()}


@ROOT_ONLY
def test_a_disk_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    image = tmp_path / "d/disk.img"
    with (
        pytest.raises(Failure, match=r"mkfs\.ext4 "),
        disk.loop_disk(tmp_path / "d", 1, mkfs=["mkfs.ext4", "-b", "77"]),
    ):
        pass
    assert not image.parent.exists()
    assert str(image) not in loops()


@ROOT_ONLY
def test_a_disk_is_mounted_and_goes_away_with_an_error(tmp_path: Path) -> None:
    mkfs = ["mkfs.ext4", "-q", "-O", "^has_journal"]
    with pytest.raises(KeyError), disk.loop_disk(tmp_path / "d", 8, mkfs=mkfs) as made:
        assert made.folder is not None
        assert str(made.image) in loops()
        file = made.folder / "file"
        file.write_text("x")
        number = file.stat().st_dev
        assert made.text == f"{os.major(number)}:{os.minor(number)}"
        raise KeyError
    assert not (tmp_path / "d").exists()
    assert str(made.image) not in loops()


@ROOT_ONLY
def test_what_others_have_put_beside_it_stays(tmp_path: Path) -> None:
    with disk.loop_disk(tmp_path / "d", 1) as made:
        assert made.folder is None
        (tmp_path / "d/kept").touch()
    assert [path.name for path in (tmp_path / "d").iterdir()] == ["kept"]


@ROOT_ONLY
def test_a_file_system_can_be_made_and_not_mounted(tmp_path: Path) -> None:
    with disk.loop_disk(tmp_path / "d", 8, mkfs=["mkfs.ext4", "-q"], mount=False) as made:
        assert made.folder is None
        assert 'TYPE="ext4"' in disk.run("blkid", "-p", made.device)
