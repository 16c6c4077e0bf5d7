// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Finds the process that a file belongs to, and decides whether it is in the scope of the
//! recording.

use super::facts::is_name;
use super::folder::{Folder, Found};
use klogger_os as os;
use klogger_os::files::FileId;
use klogger_os::maps::{self, Line};
use klogger_os::{missed, processes};
use std::collections::HashMap;
use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How many ancestors of a process are searched.
const GENERATIONS: usize = 64;

/// Which programs are recorded.
pub enum Scope {
    All,
    /// Programs that carry the token of this recording, and all descendants of its command.
    Command {
        pid: u32,
    },
    Processes(Vec<u32>),
}

/// What decides whether a file is in scope. The contents of the file alone do not: a program may
/// write anything into it.
pub struct Claim {
    /// The process whose file it is, according to the kernel; `None` if it has ended or was not
    /// found.
    pub pid: Option<u32>,
    /// It has the token of this recording, a secret: from the recorder's command, or in the copy
    /// that a forked child has of its parent's file.
    pub has_token: bool,
}

impl Scope {
    /// `known`: processes that are recorded already; `in_kernel_scope` asks the kernel's probes, if
    /// there are any.
    pub fn concerns(
        &self,
        claim: &Claim,
        known: &Known,
        in_kernel_scope: &dyn Fn(u32) -> bool,
    ) -> bool {
        let Some(pid) = claim.pid.filter(|_| !claim.has_token) else { return claim.has_token };
        let descends = |pids: &[u32]| ancestry(pid).any(|p| pids.contains(&p) || known.contains(p));
        match self {
            Scope::All => true,
            Scope::Command { pid: command } => in_kernel_scope(pid) || descends(&[*command]),
            Scope::Processes(pids) => in_kernel_scope(pid) || descends(pids),
        }
    }
}

/// Processes that are or were recorded, each with its start time, because process ids are reused.
#[derive(Default)]
pub struct Known(HashMap<u32, u64>);

impl Known {
    pub fn add(&mut self, pid: u32) {
        if let Some(started) = processes::started(pid) {
            self.0.insert(pid, started);
        }
    }

    fn contains(&self, pid: u32) -> bool {
        self.0.get(&pid).is_some_and(|started| processes::is_still(pid, *started))
    }
}

/// A process and its ancestors.
fn ancestry(pid: u32) -> impl Iterator<Item = u32> {
    let parent = |pid: &u32| Some(processes::thread(*pid, *pid)?.ppid).filter(|p| *p != 0);
    std::iter::successors(Some(pid), parent).take(GENERATIONS)
}

/// Which process has a file mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    Process(u32),
    /// It cannot be determined; the number in the file is used.
    Unknown,
    Nobody,
}

/// The process that a file belongs to; its number in the file is that of the program's own pid
/// namespace.
pub fn owner(pid: u32, inode: u64, name: &str) -> Owner {
    match owner_by_number(pid, inode, name) {
        Owner::Process(pid) => Owner::Process(pid),
        unsure => Elsewhere::look().owner(pid, inode, name).map_or(unsure, Owner::Process),
    }
}

/// The process of that number, if it has mapped the file.
pub fn owner_by_number(pid: u32, inode: u64, name: &str) -> Owner {
    match maps(pid, inode, name) {
        Some(true) => Owner::Process(pid),
        None => Owner::Unknown,
        Some(false) => Owner::Nobody,
    }
}

/// Processes in other pid namespaces than ours, by their number there.
pub struct Elsewhere(HashMap<u32, Vec<u32>>);

impl Elsewhere {
    pub fn look() -> Elsewhere {
        let mut there: HashMap<u32, Vec<u32>> = HashMap::new();
        for pid in processes::all_processes() {
            if let Some(own) = processes::own_number(pid).filter(|own| *own != pid) {
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

/// Whether a process has mapped a file for writing; `None` if it cannot be determined.
pub fn maps(pid: u32, inode: u64, name: &str) -> Option<bool> {
    let is_it = |line: &str| {
        Mapped::read(line).is_some_and(|m| m.shared && m.file.inode == inode && m.has_name(name))
    };
    match mappings(pid) {
        Some(text) => Some(text.lines().any(is_it)),
        None => (has_ended(pid) || processes::is_kernel_thread(pid)).then_some(false),
    }
}

/// Whether a process that may not be inspected runs as this user.
pub fn runs_as(pid: u32, uid: u32) -> bool {
    let text = fs::read(format!("/proc/{pid}/status"));
    let text = missed::noting_unless_gone("/proc/PID/status", text).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let uids = text.lines().find_map(|l| l.strip_prefix("Uid:"));
    uids.is_some_and(|uids| uids.split_ascii_whitespace().any(|u| u.parse() == Ok(uid)))
}

/// What it has mapped; `None`: nothing, or it cannot be determined.
fn mappings(pid: u32) -> Option<String> {
    maps::text_of(pid).ok().filter(|text| !text.is_empty())
}

/// Whether there is no process of that number, or all of its threads have ended.
fn has_ended(pid: u32) -> bool {
    match os::pidfd_open(pid) {
        Ok(process) => os::poll_readable(&[process.as_fd()], Duration::ZERO)
            .is_ok_and(|r| r.first() == Some(&true)),
        Err(e) => e.raw_os_error() == Some(libc::ESRCH),
    }
}

/// A file that is mapped.
#[derive(Debug, PartialEq, Eq)]
struct Mapped<'a> {
    file: FileId,
    path: &'a Path,
    /// Stores reach the file. The kernel has checked that the process may write to it.
    shared: bool,
}

impl Mapped<'_> {
    fn read(line: &str) -> Option<Mapped<'_>> {
        let line = Line::read(line)?;
        let path = Path::new(line.file_path()?);
        let shared = line.mode.starts_with("rw") && line.mode.ends_with('s');
        Some(Mapped { file: line.file, path, shared })
    }

    fn has_name(&self, name: &str) -> bool {
        self.path.file_name().is_some_and(|n| n == name)
    }
}

pub fn thread_exists(pid: u32, tid: u32) -> bool {
    processes::thread_exists(pid, tid)
}

/// Files that a process has mapped and that may be klogger's, by their paths in its mount
/// namespace. Such a path may lead to another file by the time it is opened, so the opened file is
/// compared with the mapped one.
pub fn files_of(pid: u32) -> Vec<Found> {
    let Ok(root) = os::files::root_of(pid) else { return Vec::new() };
    let text = mappings(pid).unwrap_or_default();
    let is_ours =
        |m: &Mapped| m.shared && m.path.file_name().is_some_and(|n| is_name(&n.to_string_lossy()));
    let mut files: Vec<Mapped> = text.lines().filter_map(Mapped::read).filter(is_ours).collect();
    files.dedup();
    let found = files.into_iter().filter_map(|m| {
        let folder = Folder::of_process(pid, &root, m.path.parent()?).ok()?;
        Some(Found {
            folder: Arc::new(folder),
            name: m.path.file_name()?.to_owned(),
            only: Some(m.file),
        })
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps() {
        let line = "7f00-7f01 rw-s 00000000 00:1a 4711                       \
                    /dev/shm/klogger-0/12.ab (deleted)";
        let mapped = Mapped::read(line).unwrap();
        let file = FileId { device: libc::makedev(0, 0x1a), inode: 4711 };
        assert_eq!(
            mapped,
            Mapped { file, path: Path::new("/dev/shm/klogger-0/12.ab"), shared: true }
        );
        assert!(mapped.has_name("12.ab") && !mapped.has_name("2.ab"));
        // A process that may only read a file has not shown that it is its owner.
        for mode in ["r--s", "rw-p", "---s"] {
            assert!(!Mapped::read(&line.replace("rw-s", mode)).unwrap().shared);
        }
        assert_eq!(Mapped::read("7f00-7f01 rw-p 00000000 00:00 0"), None);
        assert_eq!(
            Mapped::read("7f00-7f01 rw-p 00000000 00:00 0                          [heap]"),
            None
        );
    }

    #[test]
    fn processes_and_their_ancestors() {
        let me = std::process::id();
        let claim = |pid, has_token| Claim { pid, has_token };
        let (none, nobody) = (|_| false, Known::default());
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let id = child.id();
        assert!(ancestry(id).any(|p| p == me) && !ancestry(me).any(|p| p == id));
        assert!(Scope::Processes(vec![me]).concerns(&claim(Some(id), false), &nobody, &none));
        let scope = Scope::Command { pid: id };
        assert!(!scope.concerns(&claim(Some(me), false), &nobody, &none));
        assert!(scope.concerns(&claim(Some(me), false), &nobody, &|_| true));
        assert!(scope.concerns(&claim(Some(me), true), &nobody, &none));
        // For a process that has ended, only the token decides.
        assert!(scope.concerns(&claim(None, true), &nobody, &none));
        assert!(!Scope::All.concerns(&claim(None, false), &nobody, &|_| true));
        // The child of a recorded process; but not of another process with the same number.
        let mut known = Known::default();
        known.add(me);
        assert!(Scope::Processes(vec![]).concerns(&claim(Some(id), false), &known, &none));
        known.0.insert(me, 0);
        assert!(!Scope::Processes(vec![]).concerns(&claim(Some(id), false), &known, &none));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_file_is_found_through_its_process_and_is_not_replaced() {
        use std::fs::{File, Permissions};
        use std::os::unix::fs::{PermissionsExt, symlink};
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("k");
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
        let path = folder.join("1.abcdef");
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        file.set_len(4096).unwrap();
        let _map = os::Mapping::new(file.as_fd(), 4096).unwrap();
        let find = || {
            files_of(std::process::id())
                .into_iter()
                .filter(|f| f.name == "1.abcdef")
                .collect::<Vec<_>>()
        };
        let found = find();
        assert_eq!(found.len(), 1);
        assert!(
            found[0].folder.lent && found[0].only == Some(FileId::of(&file.metadata().unwrap()))
        );
        // The folder is a symbolic link by now, which is not followed.
        fs::rename(&folder, outer.path().join("moved")).unwrap();
        symlink("moved", &folder).unwrap();
        assert!(find().iter().all(|f| f.folder.path.ends_with("moved")));
        let root = os::files::root_of(std::process::id()).unwrap();
        assert!(Folder::of_process(1, &root, &folder).is_err());
    }

    #[test]
    fn a_file_is_found_to_be_mapped_by_this_process() {
        use std::os::unix::fs::MetadataExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1.ab");
        let file = fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        file.set_len(4096).unwrap();
        let _map = os::Mapping::new(file.as_fd(), 4096).unwrap();
        let (inode, name) = (file.metadata().unwrap().ino(), "1.ab");
        assert_eq!(owner(std::process::id(), inode, name), Owner::Process(std::process::id()));
        let exe = fs::metadata(std::env::current_exe().unwrap()).unwrap();
        let text = std::env::current_exe().unwrap();
        // Mapped, but not for writing.
        let exe_name = text.file_name().unwrap().to_string_lossy();
        assert_eq!(maps(std::process::id(), exe.ino(), &exe_name), Some(false));
        assert!(
            runs_as(std::process::id(), os::files::effective_uid()) && !runs_as(u32::MAX / 2, 0)
        );
        assert_eq!(owner(u32::MAX / 2, inode, name), Owner::Nobody);
        assert_eq!(processes::own_number(std::process::id()), Some(std::process::id()));
    }
}
