# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The packages of `make deb`: what lintian says of them, and that a Debian in which they are
installed, used and removed is as it was before.
"""

import json
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
import rooms

ROOT = Path(__file__).parents[2]
SYSTEM = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# What apt and dpkg keep for themselves, and what says what they did; what ends with the machine;
# the bytecode of Debian's own Python, which it writes when root runs it.
KEPT = re.compile(
    r"var/(log|cache|lib/(apt|dpkg))/|etc/\.pwd\.lock|tmp/|run/|etc/ld\.so\.cache"
    r"|usr/(lib|share)/python3.*/__pycache__"
)

pytestmark = pytest.mark.full("fetches two Debians and Python libraries: ten minutes")


@pytest.fixture(scope="module")
def packages(klogger, tmp_path_factory):
    if not shutil.which("mmdebstrap") or not shutil.which("lintian"):
        pytest.skip("no mmdebstrap or no lintian; scripts/setup release")
    return made(klogger, tmp_path_factory.mktemp("packages"))


def made(klogger, folder, releases="deb12 deb13"):
    """By their names, without versions."""
    environment = {**os.environ, "KLOGGER": str(klogger), "RELEASES": releases}
    done = subprocess.run(
        [ROOT / "scripts/deb", folder], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = {}
    for path in folder.glob("*.deb"):
        release = re.search(r"\+(deb\d+)_", path.name)
        found[path.name.split("_")[0] + (f" {release[1]}" if release else "")] = path
    return found


def test_each_has_what_it_says(packages):
    assert set(packages) == {
        "klogger", "klogger-dkms", "klogger-analysis deb12", "klogger-analysis deb13"
    }  # fmt: skip
    names = {name: names_in(path) for name, path in packages.items()}
    everywhere = [name for some in names.values() for name in some if "/doc/" not in name]
    twice = {name for name in everywhere if everywhere.count(name) > 1}
    # Only the two of one name have the same files.
    assert twice <= names["klogger-analysis deb12"] & names["klogger-analysis deb13"]
    assert "usr/share/man/man1/klogger-record.1.gz" in names["klogger"]
    assert "usr/share/man/man1/klogger-why.1.gz" in names["klogger-analysis deb12"]
    assert not [name for name in names["klogger"] if name.endswith(".py")]


def names_in(path):
    words = ["dpkg-deb", "--fsys-tarfile", path]
    content = subprocess.run(words, capture_output=True, check=True).stdout
    listed = subprocess.run(["tar", "-t"], input=content, capture_output=True, check=True).stdout
    return {name[2:] for name in listed.decode().splitlines() if not name.endswith("/")}


def test_lintian_finds_no_errors(packages):
    words = ["lintian", "--allow-root", "--no-cfg", "--fail-on", "error", *packages.values()]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    # It has looked at all of them.
    assert "W: klogger-analysis" in done.stdout


def test_the_same_tree_is_the_same_files(klogger, packages, tmp_path):
    again = made(klogger, tmp_path, "deb12")
    assert len(again) == 3
    for name, path in again.items():
        assert path.read_bytes() == packages[name].read_bytes(), name


@pytest.mark.parametrize(("suite", "release"), [("bookworm", "deb12"), ("trixie", "deb13")])
def test_a_debian_is_as_it_was_before(packages, tmp_path, suite, release):
    room = tmp_path / "room"
    why = rooms.debian(suite, room, "python3", "libstdc++6")
    if why:
        pytest.skip(f"no {suite}: {why}")

    def run(*words):
        done = rooms.run(
            room, *words, path=SYSTEM, DEBIAN_FRONTEND="noninteractive", **rooms.proxies()
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout + done.stderr

    before = files(room)
    some = [packages["klogger"], packages[f"klogger-analysis {release}"]]
    for path in some:
        shutil.copy(path, room / "tmp")
    run("apt-get", "install", "-y", "--no-install-recommends", *(f"/tmp/{p.name}" for p in some))
    use(run)
    run("apt-get", "purge", "-y", "klogger", "klogger-analysis")
    assert sorted(files(room) ^ before) == []


def use(run):
    assert re.fullmatch(r"klogger \d+\.\d+\.\d+\n", run("klogger", "--version"))
    assert run("klogger", "list").count("\n") > 20
    assert "lost" in run("klogger", "record", "-s", "scheduler", "-o", "/tmp/x.klog", "--", "true")
    assert "[quanta]" in run("klogger", "report", "/tmp/x.klog")
    run("klogger", "report", "/tmp/x.klog", "--html", "/tmp/x.html", "--png", "/tmp/pictures")
    assert " elapsed\n" in run("sh", "-c", "cd /tmp && klogger why -- true")


def files(room):
    """All of it, but what keeps account of packages."""
    found = set()
    for folder, folders, names in os.walk(room):
        place = Path(folder).relative_to(room)
        if str(place) in rooms.MOUNTS:
            folders.clear()
            continue
        found |= {str(place / name) for name in [*folders, *names]}
    return {name for name in found if not KEPT.match(name)}


def test_modules_are_registered_and_forgotten(packages, tmp_path):
    """Nothing is built: there is no kernel in there."""
    room = tmp_path / "room"
    why = rooms.debian("bookworm", room, "dkms")
    if why:
        pytest.skip(f"no bookworm: {why}")
    before = files(room)
    shutil.copy(packages["klogger"], room / "tmp/klogger.deb")
    shutil.copy(packages["klogger-dkms"], room / "tmp/klogger-dkms.deb")

    def run(*words):
        done = rooms.run(room, *words, path=SYSTEM, DEBIAN_FRONTEND="noninteractive")
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    # clang is half a gigabyte, and is not called.
    run("dpkg", "--force-depends", "-i", "/tmp/klogger.deb", "/tmp/klogger-dkms.deb")
    assert re.match(r"klogger/\d+\.\d+\.\d+: added", run("dkms", "status"))
    assert "usage: klogger dkms" in run("klogger", "dkms", "--help")
    run("dpkg", "--force-depends", "--purge", "klogger-dkms", "klogger")
    assert run("dkms", "status") == ""
    assert files(room) == before


def test_the_image_has_klogger(packages, klogger, tmp_path):
    """Unpacked as a container's engine does it."""
    if not shutil.which("buildah") and not shutil.which("podman"):
        pytest.skip("no buildah or podman; scripts/setup image")
    debs = packages["klogger"].parent
    more = {"KLOGGER": str(klogger), "DEBS": str(debs), "MIRROR": rooms.mirror()}
    done = subprocess.run(
        [ROOT / "scripts/image", tmp_path / "image"],
        env={**os.environ, **more}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = (tmp_path / "image").glob("klogger-*.oci.tar")
    room, config = unpacked(file, tmp_path)
    assert config["Entrypoint"] == ["klogger"]
    path = dict(one.split("=", 1) for one in config["Env"])["PATH"]

    def run(*words):
        done = rooms.run(room, *words, path=path)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout + done.stderr

    log = f"{config['WorkingDir']}/x.klog"
    assert "lost" in run("klogger", "record", "-s", "scheduler", "-o", log, "--", "true")
    assert "[quanta]" in run("klogger", "report", log)
    assert " elapsed\n" in run("klogger", "why", "--", "true")


def unpacked(file, folder):
    """The root directory of an image, and how it is run."""

    def blob(described):
        return blobs / described["digest"].split(":")[1]

    layout, room = folder / "layout", folder / "room"
    with tarfile.open(file) as image:
        image.extractall(layout, filter="data")
    blobs = layout / "blobs/sha256"
    (first,) = json.loads((layout / "index.json").read_text())["manifests"]
    manifest = json.loads(blob(first).read_text())
    room.mkdir()
    for layer in manifest["layers"]:
        subprocess.run(["tar", "-xf", blob(layer), "-C", room], check=True)
    return room, json.loads(blob(manifest["config"]).read_text())["config"]
