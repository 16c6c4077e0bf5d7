# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The licences of what is compiled into the program, as packages bring them."""

import re
import subprocess
import tomllib

import support


def test_each_library_has_its_licence() -> None:
    done = subprocess.run(
        [support.ROOT / "scripts/notices"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    head, *texts = done.stdout.split(f"\n{'=' * 80}\n")
    listed = dict(re.findall(r"^(\S+ \S+): (.+)$", head, re.M))
    locked = tomllib.loads((support.ROOT / "Cargo.lock").read_text())["package"]
    assert set(listed) <= {f"{one['name']} {one['version']}" for one in locked}
    direct = {"libbpf-rs", "clap", "serde_json", "blazesym"}
    assert direct <= {name.split()[0] for name in listed}
    # What only builds or tests it is not in it.
    assert not {"criterion", "proptest"} & {name.split()[0] for name in listed}
    assert "see its text" not in listed.values()
    assert any("GNU LESSER GENERAL PUBLIC LICENSE" in text for text in texts)
    with_text = {name for text in texts for name in text.split(":\n", 1)[0].split(", ")}
    assert len(with_text & set(listed)) > 0.9 * len(listed)
