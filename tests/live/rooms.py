# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Root directories in which klogger is alone, or beside a whole Debian, and sees this kernel."""

import os
import subprocess

# What a program sees of the kernel.
MOUNTS = ("proc", "sys", "dev")
ENTER = (
    'for name in proc sys dev; do mount --rbind /$name "$0/$name"; done && exec chroot "$0" "$@"'
)


def run(root, *words, path="/bin:/usr/sbin", **variables):
    """The mounts end with the command."""
    words = ["unshare", "--mount", "sh", "-c", ENTER, root, *words]
    environment = {"PATH": path, "HOME": "/tmp", **variables}
    return subprocess.run(
        words, env=environment, cwd="/", capture_output=True, text=True, check=False
    )


def mirror():
    """The one from which this machine has its packages, or else Debian's."""
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(ORIGIN) $(LABEL)"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    found = [line.split()[0] for line in listed.splitlines() if line.endswith(" Debian Debian")]
    return found[0] if found else "http://deb.debian.org/debian"


def proxies():
    """For what fetches packages in a room."""
    return {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}


def debian(suite, root, *packages):
    """A new Debian with these packages; why there is none, or an empty text."""
    words = ["mmdebstrap", "--variant=minbase", f"--include={','.join(packages)}"]
    done = subprocess.run(
        [*words, suite, root, mirror()], capture_output=True, text=True, check=False
    )
    return "" if done.returncode == 0 else done.stderr[-1000:]
