// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Confines compilers, because what they read is untrusted. They can access their own files and
//! those that they are given, reach no network, and regain no privilege; one that root starts may
//! run as a user of its own.

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr,
    RulesetCreatedAttr, Scope, path_beneath_rules,
};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

mod stranger;

/// Directories of compilers, their libraries and the programs that they start. Of `/etc`, what the
/// dynamic loader reads.
const PROGRAMS: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/opt",
    "/nix/store",
    "/gnu/store",
    "/etc/ld.so.cache",
    "/etc/ld.so.preload",
    "/etc/alternatives",
    "/dev/urandom",
    "/dev/zero",
];

/// Resource limits of a program, for each of its processes.
#[derive(Clone, Copy)]
pub struct Limits {
    pub cpu_seconds: u64,
    pub memory: u64,
    pub file_size: u64,
}

/// What a program may access besides [`PROGRAMS`].
pub struct Permits<'a> {
    pub read: &'a [&'a Path],
    pub write: &'a [&'a Path],
    /// It may reach the network.
    pub network: bool,
    /// If root starts it, it runs as a user and in a group that no other process has, so that none
    /// can stop it or change its memory.
    pub as_stranger: bool,
    pub limits: Limits,
}

/// Takes effect when the program is started. Without Landlock (Linux 5.13, optional in a kernel),
/// only running as another user keeps it from files; if an ordinary user starts it, nothing does.
pub fn confine(command: &mut Command, permits: &Permits) {
    let rules = ruleset(permits);
    let is_root = super::files::effective_uid() == 0;
    let user = (permits.as_stranger && is_root).then(stranger::id);
    let limits = permits.limits;
    // SAFETY: between fork and exec only system calls are made.
    unsafe { command.pre_exec(move || enter(rules.as_ref(), user, limits)) };
}

/// `None`: this kernel has no Landlock.
fn ruleset(permits: &Permits) -> Option<OwnedFd> {
    let Permits { read, write, network, .. } = *permits;
    // Rights that an older kernel does not know are left out.
    let abi = ABI::V6;
    let all = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))
        .and_then(|r| match network {
            true => Ok(r),
            false => r.handle_access(AccessNet::from_all(abi)),
        })
        .and_then(|r| r.scope(Scope::from_all(abi)))
        .and_then(Ruleset::create);
    let programs = PROGRAMS.iter().map(Path::new).chain(read.iter().copied());
    let null = AccessFs::ReadFile | AccessFs::WriteFile;
    let rules = all
        .and_then(|r| r.add_rules(path_beneath_rules(programs, AccessFs::from_read(abi))))
        .and_then(|r| r.add_rules(path_beneath_rules(write, AccessFs::from_all(abi))))
        .and_then(|r| r.add_rules(path_beneath_rules(["/dev/null"], null)));
    rules.ok()?.into()
}

fn enter(rules: Option<&OwnedFd>, user: Option<u32>, limits: Limits) -> io::Result<()> {
    let limit = |which, most: u64| {
        let mut limit = libc::rlimit { rlim_cur: most, rlim_max: most };
        // SAFETY: the structure is valid. A lower limit stays.
        unsafe {
            libc::getrlimit(which, &mut limit);
            let most = most.min(limit.rlim_max);
            libc::setrlimit(which, &libc::rlimit { rlim_cur: most, rlim_max: most });
        }
    };
    limit(libc::RLIMIT_CPU, limits.cpu_seconds);
    limit(libc::RLIMIT_AS, limits.memory);
    limit(libc::RLIMIT_FSIZE, limits.file_size);
    limit(libc::RLIMIT_CORE, 0);
    first_to_be_killed();
    // SAFETY: these take numbers, texts that live on, and a list of no groups.
    unsafe {
        let changed = user.is_none_or(|id| {
            libc::setgroups(0, std::ptr::null()) == 0
                && libc::setresgid(id, id, id) == 0
                && libc::setresuid(id, id, id) == 0
        });
        // A container's root may have no other users. Then only Landlock confines the program.
        if !changed && rules.is_none() {
            return Err(io::Error::last_os_error());
        }
        super::check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if let Some(rules) = rules {
            super::check(libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0)
                as libc::c_int)?;
        }
    }
    Ok(())
}

/// If memory runs out, this process is killed, and not the recorder.
pub fn first_to_be_killed() {
    // SAFETY: the texts live on; the descriptor is new and ours.
    unsafe {
        let own = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY);
        if own >= 0 {
            libc::write(own, b"1000".as_ptr().cast(), 4);
            libc::close(own);
        }
    }
}

/// Finds a program on the PATH.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/bin:/bin"));
    let is_program = |p: &PathBuf| {
        p.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(is_program)
}

/// The directory of a program's own files: `/opt/llvm` for `/opt/llvm/bin/clang`.
pub fn home_of(program: &Path) -> PathBuf {
    let program = program.canonicalize().unwrap_or_else(|_| program.into());
    let folder = program.parent().unwrap_or(Path::new("/"));
    match folder.file_name() == Some(OsStr::new("bin")) {
        true => folder.parent().unwrap_or(folder).into(),
        false => folder.into(),
    }
}

/// Makes a directory and all that is in it readable for a program that runs as a stranger, if we
/// are root.
pub fn lend(folder: &Path) -> io::Result<()> {
    if super::files::effective_uid() != 0 {
        return Ok(());
    }
    let give = |path: &Path, mode| {
        std::os::unix::fs::chown(path, None, Some(stranger::id()))?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
    };
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => lend(&entry.path())?,
            false => give(&entry.path(), 0o640)?,
        }
    }
    give(folder, 0o750)
}
