// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! A test: the programs of all kinds of probes compile for each architecture that the runtime
//! knows, with the types of this machine's kernel.

use super::{COMPILERS, FLAGS, write_texts};
use crate::host_kernel;
use klogger_codegen::{KernelTypes, Runs, bpf};
use klogger_os::confine;
use klogger_schema::{Options, parse};
use std::fs;
use std::process::Command;

const SCHEMA: &str = r#"
schema machines
event CALL { ulong value  ulong other }
event SAMPLE { context user_stack  ulong ip }
probe user /bin/a:f(unsigned long a, int b, int c, int d, int e, int f, int g, int h, int i) {
    klogger(CALL, a + b + c + d + e + f, g + h + i);
}
probe return user /bin/a:f(unsigned long result) { klogger(CALL, result, 0); }
probe usdt /bin/a:provider:name(long a, unsigned char b) { klogger(CALL, a, b); }
probe function vfs_read(struct file *file, char *buf, size_t count) {
    klogger(CALL, count, file->f_flags);
}
probe return vfs_read(ssize_t result) { klogger(CALL, result, 0); }
probe syscall openat(int dfd, const char *path) { klogger(CALL, dfd, klogger_syscall_abi()); }
probe return syscall openat(long result) { klogger(CALL, result, 0); }
probe timer 9Hz(u64 ip, bool user) { klogger(SAMPLE, user ? ip : 0); }
"#;

/// Where a program by a kprobe finds the third argument of `vfs_read`: bytes of its context.
const THIRD_ARGUMENT: [(&str, &str); 2] = [("x86", " + 96)"), ("arm64", " + 16)")];

#[test]
fn programs_compile_for_each_architecture() {
    let types: KernelTypes = host_kernel::types().unwrap();
    let schema = parse("machines.klogger", SCHEMA, &Options::default()).unwrap().schema;
    let texts = bpf::source(&schema, &types, Runs::Here).unwrap();
    let folder = tempfile::tempdir().unwrap();
    write_texts(folder.path(), &texts).unwrap();
    let clang = COMPILERS.lines().find_map(confine::find_program).unwrap();
    for (architecture, register) in THIRD_ARGUMENT {
        let own =
            FLAGS.iter().filter(|flag| !flag.starts_with("-D__TARGET_ARCH_") && **flag != "-c");
        let done = Command::new(&clang)
            .current_dir(folder.path())
            .args(own)
            .arg(format!("-D__TARGET_ARCH_{architecture}"))
            .args(["-Werror", "-S", &texts[0].name, "-o", "out.s"])
            .output()
            .unwrap();
        assert!(done.status.success(), "{architecture}: {}", String::from_utf8_lossy(&done.stderr));
        let text = fs::read_to_string(folder.path().join("out.s")).unwrap();
        let program = text.split("\nklogger_3_0w2_vfs_read:").nth(1).unwrap();
        let program = program.split("-- End function").next().unwrap();
        assert!(program.contains(register), "{architecture}: no {register} in\n{program}");
    }
}
