# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What 'make install' puts where, that it works there, and the modules that Debian's DKMS makes of
it.
"""

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from kernels import BUNDLED
from oracles import Log

pytestmark = pytest.mark.full("boots guests of its own")

ROOT = Path(__file__).resolve().parent.parent.parent
VERSION = re.search(r'^version = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.M)[1]
OWN = """schema renames "Threads that change their names"
event RENAMED "a thread has a new name" { int pid as thread  string[16] name }
probe tracepoint task_rename(struct task_struct *task, const char *comm) {
    klogger(RENAMED, task->pid, comm);
}
"""


def run(*words, timeout=900, **more):
    done = subprocess.run(
        words, check=False, capture_output=True, text=True, timeout=timeout, **more
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def files(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


@pytest.fixture(scope="module")
def prefix(klogger):
    """klogger as its package would be on a machine: installed to another place, and then moved to
    where it belongs.
    """
    if not shutil.which("cc"):
        pytest.skip("no compiler")
    # Not pytest's own folder, which other users cannot read.
    folder = Path(tempfile.mkdtemp(prefix="klogger-install-"))
    folder.chmod(0o755)
    stage, prefix = folder / "stage", folder / "prefix"
    run(
        ROOT / "scripts/install",
        env={**os.environ, "KLOGGER": str(klogger), "DESTDIR": str(stage), "PREFIX": str(prefix)},
    )
    staged = Path(f"{stage}{prefix}")
    assert all(path.is_relative_to(staged) for path in stage.rglob("*") if not path.is_dir())
    assert not run("sh", "-c", f"grep -rlF {stage} {stage} || true")
    staged.rename(prefix)
    yield prefix
    shutil.rmtree(folder)


def on_path(prefix):
    return {"PATH": f"{prefix}/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/nonexistent"}


def test_everything_has_its_place(prefix):
    found = files(prefix)
    commands = set(
        re.findall(r"^  (\w+) +[A-Z]", run("klogger", "--help", env=on_path(prefix)), re.M)
    ) - {"help"}
    programs = set(
        re.findall(r"^klogger-(\w+) = ", (ROOT / "python/pyproject.toml").read_text(), re.M)
    ) | {"dkms"}
    assert commands - programs
    expected = {"bin/klogger", *(f"bin/klogger-{name}" for name in programs)}
    expected |= {f"share/man/man1/klogger-{name}.1" for name in commands | programs}
    expected |= {f"share/man/man7/klogger-{page}.7" for page in ("schema-language", "log-format")}
    expected |= {"share/man/man1/klogger.1", "share/pkgconfig/klogger.pc"}
    expected |= {"share/bash-completion/completions/klogger", "share/zsh/site-functions/_klogger"}
    expected |= {"share/fish/vendor_completions.d/klogger.fish"}
    expected |= {f"src/klogger-{VERSION}/{name}" for name in ("dkms.conf", "Makefile")}
    expected |= {f"src/klogger-{VERSION}/{name}.klogger" for name in BUNDLED}
    expected |= {
        f"share/klogger/{path.relative_to(ROOT)}" for path in ROOT.glob("schemata/*/analyses/*.sql")
    }
    expected |= {
        f"share/klogger/{path.relative_to(ROOT)}" for path in ROOT.glob("examples/*.klogger")
    }
    assert expected <= found, expected - found
    others = {
        name
        for name in found - expected
        if not name.startswith(("lib/klogger/python/", "share/klogger/schemata/"))
    }
    assert all(re.fullmatch(r"share/man/man1/klogger-\w+-\w+\.1", name) for name in others), others


def test_it_asks_a_log_from_where_it_is(prefix, tmp_path):
    """No part of it looks for the checkout, or for what its builder has in a cache."""
    shutil.copy(ROOT / "tests/logs/v2.klog", tmp_path)
    answer = run(
        "klogger",
        "sql",
        "v2.klog",
        "SELECT count(*) AS n FROM event",
        env=on_path(prefix),
        cwd=tmp_path,
    )
    assert re.search(r"\b10\b", answer), answer
    env = {**on_path(prefix), "PKG_CONFIG_PATH": f"{prefix}/share/pkgconfig"}
    assert (
        run("pkg-config", "--variable=generator", "klogger", env=env) == f"{prefix}/bin/klogger\n"
    )


def test_other_users_can_run_it(prefix):
    """Also where klogger was built with a Python in root's own folder, and in a folder with files
    that Python would import.
    """
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    with tempfile.TemporaryDirectory() as folder:
        for name in ("json.py", "duckdb.py", "klogger.py"):
            Path(folder, name).write_text("raise SystemExit('imported from the current folder')\n")
        shutil.copy(ROOT / "tests/logs/v2.klog", folder)
        for path in (Path(folder), *Path(folder).iterdir()):
            os.chown(path, 65534, 65534)
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        env = {**on_path(prefix), "HOME": folder}
        said = run(*nobody, "klogger", "report", "v2.klog", env=env, cwd=folder)
        assert said.startswith("v2.klog: klogger record -s test\n  2.50 s, 18 events")
        said = run(*nobody, "klogger-report", "v2.klog", "--html", "x.html", env=env, cwd=folder)
        assert Path(folder, "x.html").stat().st_uid == 65534
        assert "quanta" in run(*nobody, "klogger", "study", env=env, cwd=folder)


def test_uninstall_leaves_nothing(prefix, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(prefix, copy, copy_function=os.link)
    (copy / "bin/other").touch()
    for _ in ("what is there", "nothing"):
        run(ROOT / "scripts/uninstall", env={**os.environ, "PREFIX": str(copy)})
    assert files(copy) == {"bin/other"}


@dataclass
class Dkms:
    """Debian's DKMS, with folders of its own, and a key of its own."""

    folder: Path
    sources: Path
    release: str

    def __post_init__(self):
        self.modules.parent.parent.mkdir(parents=True)
        (self.folder / "state").mkdir()

    @property
    def modules(self):
        return self.folder / "modules" / self.release / "updates/dkms"

    def __call__(self, action, package, *more):
        key = {
            "mok_signing_key": f"{self.folder}/mok.key",
            "mok_certificate": f"{self.folder}/mok.pub",
        }
        folders = ["--sourcetree", self.sources, "--dkmstree", self.folder / "state"]
        folders += ["--installtree", self.folder / "modules", "--no-depmod"]
        return run("dkms", action, package, *more, *folders, env={**os.environ, **key})


@pytest.fixture(scope="module")
def dkms(prefix, guest_release, tmp_path_factory):
    if not shutil.which("dkms") or os.geteuid() != 0:
        pytest.skip("no dkms, or not root: run 'scripts/setup guest'")
    dkms = Dkms(tmp_path_factory.mktemp("dkms"), prefix / "src", guest_release)
    dkms("install", f"klogger/{VERSION}", "-k", guest_release)
    return dkms


@pytest.fixture(scope="module")
def guest_release():
    cache = os.environ.get("KLOGGER_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "klogger"
    )
    complete = Path(cache, "guest/complete")
    if not complete.exists():
        pytest.skip("no kernel for a guest: run 'scripts/setup guest'")
    release = complete.read_text().strip().removeprefix("linux-image-")
    if not Path("/lib/modules", release, "build/Makefile").exists():
        pytest.skip(f"no headers of kernel {release}: run 'scripts/setup guest'")
    return release


@pytest.fixture(scope="module")
def own(prefix, dkms, tmp_path_factory):
    """A package of a schema of one's own, made as the manual says."""
    folder = tmp_path_factory.mktemp("own")
    schema = folder / "my-own-file.klogger"
    schema.write_text(OWN)
    made = run(
        "klogger", "dkms", "-o", prefix / "src", "renames", "1.0~rc1", schema, env=on_path(prefix)
    )
    assert made == f"{prefix}/src/renames-1.0~rc1\n"
    dkms("install", "renames/1.0~rc1", "-k", dkms.release)
    return schema


def test_a_signed_module_for_each_schema(dkms, own):
    built = {path.name for path in dkms.modules.iterdir()}
    assert built == {
        f"{name}.ko" for name in ("klogger", "klogger_renames", *(f"klogger_{n}" for n in BUNDLED))
    }
    for path in dkms.modules.iterdir():
        assert run("modinfo", "-F", "signer", path) == "DKMS module signing key\n"


@pytest.fixture(scope="module")
def recorded(dkms, own, guest, tmp_path_factory):
    """What a guest that has no compiler, and can build nothing, recorded with these modules."""
    at = f"/lib/modules/{dkms.release}/updates/dkms"
    script = f"""
    depmod
    modprobe klogger_scheduler && modprobe klogger_renames || exit 3
    klogger record --engine kernel -s scheduler -o /out/loaded.klog -- pingpong 997 processes 0
    klogger record --engine kernel -s /own.klogger -o /out/own.klog \\
        -- sh -c 'for i in 1 2 3; do busybox true; done'
    cut -d ' ' -f 1 /proc/modules >/out/stay
    rmmod klogger_renames && rmmod klogger_scheduler && rmmod klogger || exit 4
    klogger record --engine kernel --modules {at} -s switching -o /out/named.klog \\
        -- pingpong 997 processes 0
    cut -d ' ' -f 1 /proc/modules | grep klogger >/out/left
    dmesg | grep -E 'WARN|BUG|Oops|Call Trace' >/out/dmesg
    true
    """
    out = tmp_path_factory.mktemp("recorded")
    done = guest(script, out, add=[f"{dkms.modules}={at}", f"{own}=/own.klogger"], single=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def test_a_kernel_loads_them_and_records(recorded, klogger):
    assert {"klogger", "klogger_scheduler", "klogger_renames"} <= set(
        (recorded / "stay").read_text().split()
    )
    assert (recorded / "left").read_text() == "" and (recorded / "dmesg").read_text() == ""
    assert Log(klogger, recorded / "loaded.klog").count("SCHEDOUT") > 997
    assert Log(klogger, recorded / "own.klog").count("RENAMED") >= 3
    assert Log(klogger, recorded / "named.klog").meta["preamble"]["engine"] == "kernel"


def test_the_installed_analyses_answer(prefix, recorded, tmp_path):
    shutil.copy(recorded / "loaded.klog", tmp_path)
    said = run("klogger", "report", "--all", "loaded.klog", env=on_path(prefix), cwd=tmp_path)
    files = (prefix / "share/klogger/schemata/scheduler/analyses").glob("[!_]*.sql")
    titles = [re.search(r"^-- title: (.*)$", path.read_text(), re.M)[1] for path in files]
    assert [title for title in titles if title in said] == titles, said


def test_removed_modules_leave_nothing(dkms, own):
    """After those that use them."""
    for package in ("renames/1.0~rc1", f"klogger/{VERSION}"):
        dkms("remove", package, "--all")
    assert not files(dkms.folder / "modules") and not files(dkms.folder / "state")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["my", "1.0"], "usage: klogger dkms"),
        (["my", "1 0", "good.klogger"], "do not make a name for a package"),
        (["my", "../1", "good.klogger"], "do not make a name for a package"),
        (["my", "1.0", "good.klogger", "same.klogger"], "two files are the schema 'good'"),
        (["my", "1.0", "good.klogger", "bad.klogger"], "bad.klogger"),
        (["-x", "my", "1.0", "good.klogger"], "unknown option -x"),
    ],
)
def test_bad_packages_are_not_made(klogger, tmp_path, words, message):
    (tmp_path / "good.klogger").write_text("event A { int x }\n")
    (tmp_path / "same.klogger").write_text('schema good "the same"\nevent B { int x }\n')
    (tmp_path / "bad.klogger").write_text("event A { float x }\n")
    program = [ROOT / "packaging/klogger-dkms", "-o", "out", *words]
    env = {**os.environ, "KLOGGER": str(klogger)}
    done = subprocess.run(
        program, check=False, capture_output=True, text=True, cwd=tmp_path, env=env
    )
    assert done.returncode == 2 and message in done.stderr, done.stderr
    assert not (tmp_path / "out").exists()


def test_a_package_is_not_overwritten(klogger, tmp_path):
    (tmp_path / "good.klogger").write_text("event A { int x }\n")
    program = [
        ROOT / "packaging/klogger-dkms",
        "-o",
        tmp_path,
        "my",
        "1.0",
        tmp_path / "good.klogger",
    ]
    env = {**os.environ, "KLOGGER": str(klogger)}
    run(*program, env=env)
    before = (tmp_path / "my-1.0/dkms.conf").read_text()
    done = subprocess.run(program, check=False, capture_output=True, text=True, env=env)
    assert done.returncode == 2 and "dkms remove my/1.0 --all" in done.stderr
    assert (tmp_path / "my-1.0/dkms.conf").read_text() == before


def test_a_package_has_the_texts_that_schemata_include(klogger, tmp_path):
    env = {**os.environ, "KLOGGER": str(klogger)}
    for name, number in (("one", 7), ("two", 7), ("three", 8)):
        (tmp_path / name).mkdir()
        schema = f'schema {name}\ninclude "numbers"\nevent A {{ int x }}\n'
        (tmp_path / name / "a.klogger").write_text(schema)
        text = f"code {{ static int number(void) {{ return {number}; }} }}\n"
        (tmp_path / name / "numbers.shared").write_text(text)
    program = [ROOT / "packaging/klogger-dkms", "-o", tmp_path]
    run(*program, "my", "1.0", *(tmp_path / name / "a.klogger" for name in ("one", "two")), env=env)
    assert "return 7" in (tmp_path / "my-1.0/numbers.shared").read_text()
    words = ["my", "2.0", *(tmp_path / name / "a.klogger" for name in ("one", "three"))]
    done = subprocess.run([*program, *words], check=False, capture_output=True, text=True, env=env)
    assert done.returncode == 2 and "two different texts are called 'numbers.shared'" in done.stderr
    assert not (tmp_path / "my-2.0").exists()
