# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Functions that fentry does not take, on a kernel on which the registers of a kprobe have types:
Linux 6.2 and later.
"""

import re
import shutil
import subprocess

import compilers
import pytest
from kernels import debian

pytestmark = pytest.mark.full("boots guests of its own")

TIMES, LENGTH = 17, 0x3000
# It has more than six arguments.
SCHEMA = """schema mapped
event MAPPED { ulong length  ulong protection  ulong inode }
event MAPPED_AT { ulong address }
probe function do_mmap(struct file *file, unsigned long addr, unsigned long len,
                       unsigned long prot) {
    klogger(MAPPED, len, prot, file ? file->f_inode->i_ino : 0);
}
probe return do_mmap(unsigned long result) { klogger(MAPPED_AT, result); }
"""
PROGRAM = f"""
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
int main(void)
{{
    struct stat about;
    int fd = open("/mapped", O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, {LENGTH}) || fstat(fd, &about))
        return 1;
    for (int i = 0; i < {TIMES}; i++)
        if (mmap(NULL, {LENGTH}, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED)
            return 1;
    printf("%lu\\n", (unsigned long)about.st_ino);
    return 0;
}}
"""


@pytest.mark.nightly("boots a kernel that is fetched")
@pytest.mark.parametrize("kernel", ["6.12"])
def test_members_behind_the_registers_of_a_kprobe(guest, tmp_path, kernel):
    image, reason = debian(kernel)
    if image is None:
        pytest.skip(reason)
    clang = shutil.which(compilers.clang() or pytest.skip("no clang"))
    (tmp_path / "mapped.klogger").write_text(SCHEMA)
    (tmp_path / "work.c").write_text(PROGRAM)
    words = ["cc", "-O1", "-static", "-o", tmp_path / "work", tmp_path / "work.c"]
    subprocess.run(words, check=True)
    out = tmp_path / "out"
    out.mkdir()
    script = (
        "klogger record -s /mapped.klogger -o /out/log.klog -- /work >/out/inode 2>/out/err && "
        "klogger cat /out/log.klog --event MAPPED,MAPPED_AT >/out/text"
    )
    add = [f"{tmp_path / 'mapped.klogger'}=/mapped.klogger", f"{tmp_path / 'work'}=/work"]
    done = guest(script, out, add=[*add, f"{clang}=/bin/clang"], kernel=image, memory="3G")
    assert done.returncode == 0, done.stdout + done.stderr + (out / "err").read_text()
    inode, text = (out / "inode").read_text().strip(), (out / "text").read_text()
    hits = re.findall(rf"MAPPED +length={LENGTH} protection=1 inode={inode}\b", text)
    assert len(hits) == TIMES
    assert len(re.findall(r" MAPPED +length", text)) == len(re.findall(r" MAPPED_AT ", text))
