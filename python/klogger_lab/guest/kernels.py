# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The kernel of a guest: an image, Debian's packages of one, or a tree in which a kernel
was built.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from klogger import outputs
from klogger.export import cache_home
from klogger.failure import Failure

BZIMAGE = Path("arch/x86/boot/bzImage")
# What an emulated machine never has is most of a distribution's modules.
NEVER = (
    "sound",
    "drivers/gpu",
    "drivers/media",
    "drivers/net/wireless",
    "drivers/infiniband",
    "drivers/iio",
)


@dataclass(frozen=True)
class Kernel:
    """`tree`: the folder in which it was built. `modules`: what is its /lib/modules/RELEASE, if it
    has any.
    """

    image: Path
    release: str
    tree: Path | None = None
    modules: Path | None = None


def choose(*given: str) -> Kernel:
    if not given:
        return default()
    paths = [Path(word) for word in given]
    for path in paths:
        if not path.exists():
            raise Failure(
                f"{path}: no such file",
                help="--kernel takes a bzImage, a linux-image .deb, or a build tree",
            )
        if len(paths) > 1 and path.suffix != ".deb":
            raise Failure(
                f"{path}: only of packages several can make one kernel", help="name one kernel"
            )
    if paths[0].is_dir():
        return of_tree(paths[0].absolute())
    return of_packages(paths) if paths[0].suffix == ".deb" else of_image(paths[0].absolute())


def cache() -> Path:
    return Path(os.environ.get("KLOGGER_CACHE") or cache_home()) / "guest"


def default() -> Kernel:
    """What `scripts/setup guest` fetched, or the kernel that runs here."""
    package = newest(cache().glob("linux-image-*.deb"))
    if package:
        return of_packages([package])
    running = Path(f"/boot/vmlinuz-{os.uname().release}")
    if running.exists():
        return of_image(running)
    raise Failure(
        f"there is no kernel for the guest: none in {cache()}, and no {running}",
        help="name one with --kernel; 'scripts/setup guest' fetches Debian's",
    )


def newest(paths: Iterable[Path]) -> Path | None:
    return max(
        paths,
        key=lambda path: [int(digits) for digits in re.findall(r"\d+", path.name)],
        default=None,
    )


def of_image(image: Path) -> Kernel:
    release = release_of(image)
    return Kernel(image, release, modules=modules_of(image, release))


def release_of(image: Path) -> str:
    """As its own header says: Documentation/arch/x86/boot.rst, "kernel_version"."""
    try:
        with image.open("rb") as file:
            head = file.read(0x10000)
    except OSError as error:
        raise Failure(
            f"{image}: cannot be read: {error.strerror}", help="some systems let only root read it"
        ) from None
    at = 0x200 + int.from_bytes(head[0x20E:0x210], "little")
    text = head[at : at + 200].split(b"\0")[0].decode("ascii", "replace")
    if head[0x202:0x206] != b"HdrS" or not text:
        raise Failure(
            f"{image}: not a bzImage", help="a kernel's build leaves it in arch/x86/boot/bzImage"
        )
    return text.split()[0]


def modules_of(image: Path, release: str) -> Path | None:
    """In lib/modules/RELEASE beside the image or further up, so that /boot belongs to
    /lib/modules.
    """
    for folder in image.resolve().parents:
        for place in ("lib/modules", "usr/lib/modules"):
            # Packages of headers make the folder as well, with nothing but a link in it.
            if (folder / place / release / "kernel").is_dir():
                return folder / place / release
    return None


def of_tree(tree: Path) -> Kernel:
    image = tree / BZIMAGE
    if not image.exists():
        raise Failure(
            f"{tree}: no kernel was built there: it has no {BZIMAGE}",
            help=f"build one: make -C {tree} -j$(nproc) bzImage modules",
        )
    # virtme-ng collects links to the tree's modules there.
    collected = tree / ".virtme_mods/lib/modules/0.0.0"
    return Kernel(
        image, release_of(image), tree, collected if (tree / "modules.order").exists() else None
    )


def of_packages(packages: list[Path]) -> Kernel:
    """Unpacked to a folder of the cache with the name of the release; anew only if the packages are
    others.
    """
    identity = "".join(identity_of(package) for package in packages)
    name = re.sub(r"^linux-(image|binary|modules)-(unsigned-)?", "", packages[0].name.split("_")[0])
    target = cache() / name.removesuffix("-unsigned")
    stamp = target / "package"
    if not stamp.exists() or stamp.read_text() != identity:
        unpack(packages, target, identity)
    image = newest(
        path
        for place in ("boot/vmlinuz-*", "**/lib/modules/*/vmlinuz")
        for path in target.glob(place)
    )
    if image is None:
        outputs.remove_folder(target)
        raise Failure(
            f"{packages[0]}: there is no vmlinuz in it",
            help="the kernel's own package is needed, linux-image-...; of newer kernels two:"
            " --kernel linux-binary-... --kernel linux-modules-...",
        )
    return of_image(image)


def identity_of(package: Path) -> str:
    try:
        status = package.stat()
    except OSError as error:
        raise Failure(f"{package}: cannot be read: {error.strerror}") from None
    return f"{package.name} {status.st_size} {status.st_mtime_ns}\n"


def unpack(packages: list[Path], target: Path, identity: str) -> None:
    if shutil.which("dpkg-deb") is None:
        raise Failure(
            f"cannot unpack {packages[0]}: there is no dpkg-deb",
            help="install dpkg, or unpack it yourself",
        )
    outputs.own_folder(target.parent)
    # Complete, or not there: others may do the same at the same time.
    with tempfile.TemporaryDirectory(prefix=".unpack-", dir=target.parent) as name:
        into = Path(name) / "kernel"
        for package in packages:
            done = subprocess.run(
                ["dpkg-deb", "-x", package, into], capture_output=True, text=True, check=False
            )
            if done.returncode != 0:
                complaint = done.stderr.strip().removeprefix("dpkg-deb: error: ")
                raise Failure(
                    f"{package}: cannot be unpacked: {complaint}",
                    help="is it a Debian package, and complete?",
                )
        for folder in into.glob("**/lib/modules/*"):
            for part in NEVER:
                shutil.rmtree(folder / "kernel" / part, ignore_errors=True)
            # busybox, which loads the first modules, need not know how to unpack them.
            for packed in folder.rglob("*.ko.xz"):
                subprocess.run(["xz", "-d", packed], check=True)
        into.chmod(0o755)
        (into / "package").write_text(identity)
        if target.exists():
            target.rename(Path(name) / "old")
        into.rename(target)
