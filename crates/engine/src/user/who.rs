// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Whose file it is, and whether it concerns the recording.

use super::file::is_name;
use super::folder::{Folder, Found};
use crate::{processes, sys};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Generations between a process and an ancestor that is looked for.
const GENERATIONS: usize = 64;

/// Who is recorded.
pub enum Scope {
    All,
    /// Programs that carry the token of this recording, and all descendants of its command.
    Command {
        token: u64,
        pid: u32,
    },
    Processes(Vec<u32>),
}

/// What decides whether a file concerns us.
pub struct Claim {
    /// As this process sees it.
    pub pid: u32,
    /// As the program saw it.
    pub parent: u32,
    pub token: u64,
}

impl Scope {
    /// `known` are processes that are recorded already; `in_kernel_scope` asks the kernel's probes, if there are any.
    pub fn concerns(&self, claim: &Claim, known: &HashSet<u32>, in_kernel_scope: &dyn Fn(u32) -> bool) -> bool {
        let child = known.contains(&claim.pid) || (claim.parent != 0 && known.contains(&claim.parent));
        match self {
            Scope::All => true,
            Scope::Command { token, pid } => {
                claim.token == *token || child || in_kernel_scope(claim.pid) || descends(claim.pid, &[*pid])
            }
            Scope::Processes(pids) => child || in_kernel_scope(claim.pid) || descends(claim.pid, pids),
        }
    }
}

/// Whether a process, or one of its ancestors, is one of `pids`.
fn descends(pid: u32, pids: &[u32]) -> bool {
    let parent = |pid: &u32| Some(processes::thread(*pid, *pid)?.ppid).filter(|p| *p != 0);
    std::iter::successors(Some(pid), parent).take(GENERATIONS).any(|p| pids.contains(&p))
}

/// Who has a file mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    Process(u32),
    /// It cannot be found out; the number in the file has to do.
    Unknown,
    Nobody,
}

/// The process to which a file belongs, whose number in the file is that of the program's own pid namespace.
pub fn owner(pid: u32, inode: u64, name: &str) -> Owner {
    match owner_by_number(pid, inode, name) {
        Owner::Process(pid) => Owner::Process(pid),
        unsure => Elsewhere::look().owner(pid, inode, name).map_or(unsure, Owner::Process),
    }
}

/// The process of that number, if the file is its.
pub fn owner_by_number(pid: u32, inode: u64, name: &str) -> Owner {
    match maps(pid, inode, name) {
        Some(true) => Owner::Process(pid),
        None => Owner::Unknown,
        Some(false) => Owner::Nobody,
    }
}

/// Processes in other pid namespaces than ours, by the number that they have there.
pub struct Elsewhere(HashMap<u32, Vec<u32>>);

impl Elsewhere {
    pub fn look() -> Elsewhere {
        let mut there: HashMap<u32, Vec<u32>> = HashMap::new();
        for pid in processes::all_processes() {
            if let Some(own) = own_number(pid).filter(|own| *own != pid) {
                there.entry(own).or_default().push(pid);
            }
        }
        Elsewhere(there)
    }

    pub fn owner(&self, pid: u32, inode: u64, name: &str) -> Option<u32> {
        let mut candidates = self.0.get(&pid).into_iter().flatten();
        candidates.find(|p| maps(**p, inode, name) == Some(true)).copied()
    }
}

/// Whether a process has a file mapped; `None` if it cannot be found out.
pub fn maps(pid: u32, inode: u64, name: &str) -> Option<bool> {
    let is_it = |line: &str| mapped_file(line).is_some_and(|(i, path)| i == inode && path.ends_with(name));
    match mappings(pid) {
        Some(text) => Some(text.lines().any(is_it)),
        None => (has_ended(pid) || is_kernel_thread(pid)).then_some(false),
    }
}

/// What /proc/PID/maps says. If the first thread of a process has ended before the others, only theirs say anything.
fn mappings(pid: u32) -> Option<String> {
    let read = |path: String| fs::read(path).ok().filter(|text| !text.is_empty());
    let of_another = || {
        let mut threads = processes::threads_of(pid).into_iter();
        threads.find_map(|tid| read(format!("/proc/{pid}/task/{tid}/maps")))
    };
    let text = read(format!("/proc/{pid}/maps")).or_else(of_another)?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// Whether there is no process of that number, or all of its threads have ended.
fn has_ended(pid: u32) -> bool {
    match sys::pidfd_open(pid) {
        Ok(process) => sys::poll_readable(&[process.as_fd()], Duration::ZERO).is_ok_and(|r| r.first() == Some(&true)),
        Err(e) => e.raw_os_error() == Some(libc::ESRCH),
    }
}

/// Those have no memory of their own, and never will.
fn is_kernel_thread(pid: u32) -> bool {
    const PF_KTHREAD: u64 = 0x0020_0000;
    let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let stat = String::from_utf8_lossy(&stat);
    // Behind the name stand the state (field 3) and numbers; the flags are field 9.
    let flags = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(6)?.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & PF_KTHREAD != 0)
}

/// Inode and path of a line of /proc/PID/maps: `RANGE MODE OFFSET DEVICE INODE   PATH`.
fn mapped_file(line: &str) -> Option<(u64, &str)> {
    let inode = line.split_ascii_whitespace().nth(4)?.parse().ok()?;
    let path = line.find('/').map(|at| &line[at..])?;
    Some((inode, path.strip_suffix(" (deleted)").unwrap_or(path)))
}

/// The number that a process has in its own pid namespace.
fn own_number(pid: u32) -> Option<u32> {
    innermost(&format!("/proc/{pid}/status"))
}

/// The thread of process `pid` that calls itself `tid`.
pub fn thread(pid: u32, tid: u32) -> Option<u32> {
    let own = |t: &u32| innermost(&format!("/proc/{pid}/task/{t}/status"));
    processes::threads_of(pid).into_iter().find(|t| own(t) == Some(tid))
}

/// The last number behind `NSpid:`.
fn innermost(status: &str) -> Option<u32> {
    let text = fs::read(status).ok()?;
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().find_map(|l| l.strip_prefix("NSpid:"))?;
    line.split_ascii_whitespace().last()?.parse().ok()
}

pub fn thread_exists(pid: u32, tid: u32) -> bool {
    Path::new(&format!("/proc/{pid}/task/{tid}")).exists()
}

/// Files that a process has mapped and that may be ones of klogger, seen from where the process sees them.
pub fn files_of(pid: u32) -> Vec<Found> {
    let text = mappings(pid).unwrap_or_default();
    let mut paths: Vec<&Path> = text.lines().filter_map(|l| Some(Path::new(mapped_file(l)?.1))).collect();
    paths.dedup();
    let named = paths.into_iter().filter(|p| p.file_name().is_some_and(|n| is_name(&n.to_string_lossy())));
    let found = named.filter_map(|path| {
        let parent = path.parent()?.strip_prefix("/").ok()?;
        let folder = Folder::open(&PathBuf::from(format!("/proc/{pid}/root")).join(parent), None).ok()?;
        Some(Found { folder: Arc::new(folder), name: path.file_name()?.to_owned() })
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps() {
        let line = "7f00-7f01 rw-s 00000000 00:1a 4711                       /dev/shm/klogger-0/12.ab (deleted)";
        assert_eq!(mapped_file(line), Some((4711, "/dev/shm/klogger-0/12.ab")));
        assert_eq!(mapped_file("7f00-7f01 rw-p 00000000 00:00 0"), None);
        assert_eq!(mapped_file("7f00-7f01 rw-p 00000000 00:00 0                          [heap]"), None);
    }

    #[test]
    fn processes_and_their_ancestors() {
        let me = std::process::id();
        let none = |_| false;
        let claim = |parent, token| Claim { pid: me, parent, token };
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(descends(child.id(), &[me]) && !descends(me, &[child.id()]));
        assert!(Scope::Processes(vec![me]).concerns(&claim(0, 0), &HashSet::new(), &none));
        let scope = Scope::Command { token: 7, pid: child.id() };
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(scope.concerns(&claim(0, 7), &HashSet::new(), &none));
        assert!(!scope.concerns(&claim(0, 0), &HashSet::new(), &none));
        assert!(scope.concerns(&claim(0, 0), &HashSet::new(), &|_| true));
        assert!(scope.concerns(&claim(99, 0), &HashSet::from([99]), &none));
    }

    #[test]
    fn our_own_binary_is_mapped_by_us() {
        use std::os::unix::fs::MetadataExt;
        let exe = std::env::current_exe().unwrap();
        let (inode, name) =
            (fs::metadata(&exe).unwrap().ino(), exe.file_name().unwrap().to_string_lossy().into_owned());
        assert_eq!(owner(std::process::id(), inode, &name), Owner::Process(std::process::id()));
        assert_eq!(owner(u32::MAX / 2, inode, &name), Owner::Nobody);
        assert_eq!(own_number(std::process::id()), Some(std::process::id()));
    }
}
