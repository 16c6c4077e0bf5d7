// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Finds the files that have the names of code. A path that a program has chosen is only opened if
//! it is a regular file, and its build id must be the one in the log.

use crate::elf::{Facts, facts};
use crate::fetcher::Tell;
use crate::finder::kind_of;
use crate::perf_map::BYTES_MAX;
use klogger_log::code::File as Code;
use klogger_os::files::{
    FileId, effective_uid, folder_of, look_at, open_of, open_regular, open_seen_regular,
};
use klogger_os::mapped::Mapped;
use klogger_os::mounts::Mounts;
use klogger_os::roots::{Roots, inherited};
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Where files are looked for.
#[derive(Debug, Default)]
pub struct Search {
    /// Folders with debug information: `.build-id/NN/REST.debug`.
    pub debug: Vec<PathBuf>,
    /// The root of the files of another machine.
    pub sysroot: Option<PathBuf>,
    /// Containers in which files are looked for as well.
    pub roots: Option<Roots>,
    /// Which files they are, by their numbers in the log.
    pub mapped: Vec<Mapped>,
    /// What does not answer, as [`Step`] calls it.
    pub silent: BTreeSet<String>,
    /// Only debug information is wanted, of files that have too few names of their own.
    pub only_debug: bool,
    /// The log is of this machine, and is being written: the files are those that ran. Then files
    /// are identified, and the code of the kernel in each program has names.
    pub here: bool,
    /// Hears of servers that are waited for.
    pub tell: Option<Tell>,
    /// What is mounted where, once it was needed.
    pub mounts: OnceCell<Mounts>,
}

/// The result of a search.
pub struct Result {
    pub what: Found,
    /// The paths that were looked at.
    pub looked: Vec<String>,
}

/// Says what the search asks next. Whoever hears it ends this process if there is no answer.
pub type Step<'a> = &'a dyn Fn(&str);

pub use klogger_os::answers::SILENT;

pub enum Found {
    /// What a program says of code that it has made; by a path of the process that reads it, and
    /// its size.
    Map(OwnedFd, PathBuf, u64),
    File(PathBuf, Facts),
    /// A file of a container, by a path of the process that reads it.
    Held(OwnedFd, PathBuf, Facts),
    Vdso(NamedTempFile),
    Nothing(String),
    /// It is there, but is not to be trusted, or cannot be read.
    Refused(String),
}

impl Search {
    /// For a log of this machine, whose programs ran in these containers too, and had mapped these
    /// files.
    pub fn here(roots: Roots, mapped: Vec<Mapped>, tell: Option<Tell>) -> Search {
        let (debug, roots) = (Search::debug_folders(), Some(roots));
        Search { debug, roots, mapped, tell, here: true, ..Search::default() }
    }

    /// The folders of debug information that are searched without options.
    pub fn debug_folders() -> Vec<PathBuf> {
        vec!["/usr/lib/debug".into()]
    }

    /// `number`: of the file in the log.
    pub fn find(&self, number: u32, file: &Code, step: Step) -> Result {
        let pid = file.path.strip_prefix("[perf map ").and_then(|p| p.strip_suffix(']'));
        if let Some(pid) = pid.and_then(|pid| pid.parse().ok()) {
            let refused = || {
                let looked = vec![format!("/tmp/perf-{pid}.map")];
                Result { what: Found::Refused(SILENT.into()), looked }
            };
            return self.ask(format!("map {pid}"), step, || self.map(pid)).unwrap_or_else(refused);
        }
        if file.path == "[vdso]" {
            let copy = if self.here { vdso().ok() } else { None };
            let unknown = || Found::Nothing("the kernel's code is only known where it runs".into());
            let what = copy.map_or_else(unknown, Found::Vdso);
            return Result { what, looked: Vec::new() };
        }
        self.file(file, self.mapped.get(number as usize), step)
    }

    /// What `look` finds, unless this did not answer before.
    fn ask<T>(&self, what: String, step: Step, look: impl FnOnce() -> T) -> Option<T> {
        if self.silent.contains(&what) || self.silent.contains(kind_of(&what)) {
            return None;
        }
        step(&what);
        Some(look())
    }

    /// What a process has written of the code that it made. Of a recording that has ended, nobody
    /// knows the user of the process: a map of root or of the caller counts, and below a sysroot
    /// those of its owner.
    fn map(&self, pid: u32) -> Result {
        let name = |number: u32| format!("perf-{number}.map");
        let folder = self.below("/tmp");
        let path = folder.join(name(pid));
        let map = match &self.roots {
            Some(roots) => roots.written_by(pid, &folder, name),
            None => {
                let owner = self.sysroot.as_ref().and_then(|root| root.metadata().ok());
                let users = [0, effective_uid()].into_iter().chain(owner.map(|o| o.uid()));
                look_at(&folder)
                    .and_then(|folder| open_of(&folder, name(pid).as_ref(), &Vec::from_iter(users)))
            }
        };
        let what = match map.and_then(|map| Ok((map.metadata()?.len(), inherited(&map)?))) {
            Ok((size, _)) if size > BYTES_MAX => {
                Found::Refused(format!("it is larger than {} MiB", BYTES_MAX >> 20))
            }
            Ok((size, held)) => {
                let path = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
                Found::Map(held, path, size)
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                Found::Nothing("it wrote no map of the code that it made".into())
            }
            Err(e) => Found::Refused(e.to_string()),
        };
        Result { what, looked: vec![path.display().to_string()] }
    }

    /// The file itself, or its debug information.
    fn file(&self, file: &Code, mapped: Option<&Mapped>, step: Step) -> Result {
        let path = self.below(&file.path);
        let mut looked = vec![path.display().to_string()];
        let mut other = false;
        let mut silent = false;
        // By its path first: debug information may lie beside it.
        if !self.only_debug {
            let found = self.ask(self.folder(&path), step, || opened(&path));
            silent |= found.is_none();
            match found.flatten() {
                Some((found, is)) if self.is(file, mapped, &found, &is) => {
                    return Result { what: Found::File(path, is), looked };
                }
                found => other |= found.is_some(),
            }
            for root in 0..self.roots.as_ref().map_or(0, Roots::count) {
                let look = || self.in_container(root, file, mapped);
                match self.ask(format!("root {root}"), step, look) {
                    Some(Some(Ok(what))) => return Result { what, looked },
                    Some(found) => other |= found.is_some(),
                    None => silent = true,
                }
            }
        }
        if let Some(mapped) = mapped.filter(|_| !self.only_debug) {
            let of = format!("process {}", mapped.by.0);
            match self.ask(of, step, || self.still_mapped(file, mapped)) {
                Some(Some(what)) => return Result { what, looked },
                found => silent |= found.is_none(),
            }
        }
        if let Some((first, rest)) = file.build_id.split_at_checked(2).filter(|_| is_hex(file)) {
            let names = [".debug", ""].map(|ending| format!(".build-id/{first}/{rest}{ending}"));
            let all = self.debug.iter().flat_map(|folder| names.each_ref().map(|n| folder.join(n)));
            for path in all {
                looked.push(path.display().to_string());
                let found = self.ask(self.folder(&path), step, || opened(&path));
                silent |= found.is_none();
                // Debug information cannot be used without the segments of the file itself.
                if let (Some(Some((_, is))), false) = (found, file.loads.is_empty()) {
                    return Result { what: Found::File(path, is), looked };
                }
            }
        }
        let what = match (silent, other) {
            (true, _) => Found::Refused(SILENT.into()),
            (_, true) => Found::Nothing("the file there is another one".into()),
            (_, false) => Found::Nothing("there is no such file".into()),
        };
        Result { what, looked }
    }

    /// The file in a container; `Err`: the one with its path there is another.
    fn in_container(
        &self,
        root: usize,
        file: &Code,
        mapped: Option<&Mapped>,
    ) -> Option<std::result::Result<Found, ()>> {
        let found = self.roots.as_ref()?.file(root, Path::new(&file.path)).ok()?;
        let is_it = facts(&found).is_some_and(|is| self.is(file, mapped, &found, &is));
        Some(held(Some(found).filter(|_| is_it)).ok_or(()))
    }

    /// The file by the process that has mapped it.
    fn still_mapped(&self, file: &Code, mapped: &Mapped) -> Option<Found> {
        let found = open_seen_regular(&*mapped.find()?).ok()?;
        let is_it = facts(&found).is_some_and(|is| self.is(file, Some(mapped), &found, &is));
        held(Some(found).filter(|_| is_it))
    }

    /// What is asked for a path: files that are mounted where one did not answer are not asked for;
    /// of what everything else is mounted in, those of the same folder.
    fn folder(&self, path: &Path) -> String {
        match self.mounts.get_or_init(Mounts::read).around(path) {
            Some(mount) => format!("mount {}", mount.at.display()),
            None => format!("folder {}", folder_of(path).display()),
        }
    }

    /// In the root of the other machine, if there is one.
    fn below(&self, path: &str) -> PathBuf {
        match &self.sysroot {
            Some(root) => root.join(path.trim_start_matches('/')),
            None => path.into(),
        }
    }

    /// Whether it is the file that ran: by its build id; without one, by its number here, and
    /// elsewhere by its segments.
    fn is(&self, file: &Code, mapped: Option<&Mapped>, found: &File, is: &Facts) -> bool {
        if !file.build_id.is_empty() {
            return is.build_id == file.build_id;
        }
        let id = mapped.and_then(|mapped| mapped.id);
        match (self.here, id) {
            (true, Some(id)) => FileId::known(found).is_ok_and(|known| id.is(known)),
            (true, None) => true,
            (false, _) => is.build_id.is_empty() && is.loads == file.loads,
        }
    }
}

/// An open file for the process that reads it, which may not look at other processes: it inherits
/// a descriptor.
fn held(found: Option<File>) -> Option<Found> {
    let found = found?;
    let is = facts(&found)?;
    let held = inherited(&found).ok()?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
    Some(Found::Held(held, path, is))
}

fn opened(path: &Path) -> Option<(File, Facts)> {
    let file = open_regular(path).ok()?;
    let facts = facts(&file)?;
    Some((file, facts))
}

/// A copy of the code that the kernel gives to each program.
fn vdso() -> io::Result<NamedTempFile> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    let range = maps.lines().find(|line| line.ends_with("[vdso]")).and_then(|line| {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        let hex = |digits| u64::from_str_radix(digits, 16).ok();
        Some((hex(start)?, hex(end)?))
    });
    let (start, end) = range.ok_or(io::ErrorKind::NotFound)?;
    let mut image = vec![0; (end - start) as usize];
    File::open("/proc/self/mem")?.read_exact_at(&mut image, start)?;
    let mut copy = NamedTempFile::new()?;
    copy.write_all(&image)?;
    Ok(copy)
}

fn is_hex(file: &Code) -> bool {
    file.build_id.bytes().all(|b| b.is_ascii_hexdigit())
}
