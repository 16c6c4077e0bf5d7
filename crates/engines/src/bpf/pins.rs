// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What outlives a recorder that is killed: its rings, and what is needed to read them, pinned in
//! the kernel's file system for BPF objects. Its programs are detached when it dies, so that the
//! rings do not change any more.
//!
//! `/sys/fs/bpf/klogger/PID-START/`: the maps, `about` (JSON, in a map of one element), and
//! `programs/SCHEMA/NAME`, from which the number of skipped hits can be read.

use klogger_os::Error;
use klogger_os::outputs::Folder;
use klogger_os::{bpffs, files, missed, processes};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub const RINGS: &str = "rings";
pub const NESTED: &str = "nested";
pub const RINGLESS: &str = "ringless";
/// Strings and arrays that could not be read, by event.
pub const UNREAD: &str = "unread";
/// Hits that copies of programs have logged, by number of the probe.
pub const CAUGHT: &str = "caught";
pub const STACKS: &str = "stacks";
pub const STACKLESS: &str = "stackless";
pub const ANCHOR: &str = "anchor";
/// The ring that replaces that of a CPU.
pub fn larger(cpu: u16) -> String {
    format!("larger-{cpu}")
}

const FACTS: &str = "about";
const PROGRAMS: &str = "programs";

fn root() -> PathBuf {
    Path::new(bpffs::ROOT).join("klogger")
}

/// The pins of this recorder. They are removed when it ends normally.
pub struct Pins {
    folder: PathBuf,
}

impl Pins {
    pub fn new() -> Result<Pins, Error> {
        let pid = std::process::id();
        bpffs::mount().map_err(|e| cannot(Path::new(bpffs::ROOT), e))?;
        let started = processes::started(pid).ok_or_else(|| {
            cannot(&root(), io::Error::other("/proc does not say when this process was started"))
        })?;
        let folder = root().join(format!("{pid}-{started}"));
        Folder::make_with(&root(), 0o700).map_err(|e| cannot(&folder, e))?;
        check_owner(&root())?;
        make(&folder.join(PROGRAMS))?;
        Ok(Pins { folder })
    }

    pub fn map(&self, name: &str, map: BorrowedFd) -> Result<(), Error> {
        self.pin(&self.folder.join(name), map)
    }

    pub fn program(&self, schema: &str, name: &str, program: BorrowedFd) -> Result<(), Error> {
        let folder = self.folder.join(PROGRAMS).join(schema);
        make(&folder)?;
        self.pin(&folder.join(name), program)
    }

    pub fn facts(&self, facts: &[u8]) -> Result<(), Error> {
        let map = array(FACTS, facts.len(), 0).map_err(|e| cannot(&self.folder.join(FACTS), e))?;
        let cannot = |e| cannot(&self.folder.join(FACTS), io::Error::other(e));
        map.update(&0u32.to_ne_bytes(), facts, MapFlags::ANY).map_err(cannot)?;
        self.map(FACTS, map.as_fd())
    }

    /// Makes a pinned map that can be mapped.
    pub fn memory(&self, name: &str, bytes: usize) -> Result<OwnedFd, Error> {
        let map = memory(name, bytes).map_err(|e| cannot(&self.folder.join(name), e))?;
        self.map(name, map.as_fd())?;
        map.as_fd().try_clone_to_owned().map_err(|e| cannot(&self.folder.join(name), e))
    }

    fn pin(&self, path: &Path, object: BorrowedFd) -> Result<(), Error> {
        bpffs::pin(object, path).map_err(|e| cannot(path, e))
    }
}

/// Makes a map that can be mapped.
pub fn memory(name: &str, bytes: usize) -> io::Result<MapHandle> {
    array(name, bytes, libbpf_sys::BPF_F_MMAPABLE)
}

/// Makes a map of one element.
fn array(name: &str, bytes: usize, flags: u32) -> io::Result<MapHandle> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        map_flags: flags,
        ..Default::default()
    };
    let kernel_name = format!("klogger_{name}");
    MapHandle::create(MapType::Array, Some(kernel_name), 4, bytes as u32, 1, &options)
        .map_err(io::Error::other)
}

impl Drop for Pins {
    fn drop(&mut self) {
        remove(&self.folder);
    }
}

fn make(folder: &Path) -> Result<(), Error> {
    Folder::make_with(folder, 0o700).map(drop).map_err(|e| cannot(folder, e))
}

fn remove(folder: &Path) {
    let _ = Folder::of_name(folder).and_then(|(root, name)| root.remove_all(&name));
    // Fails while there are folders of other recorders.
    let _ = Folder::of_name(&root()).and_then(|(all, name)| all.remove_folder(&name));
}

/// On some systems every user may write to the BPF file system, so that another user may have made
/// the folder first.
fn check_owner(folder: &Path) -> Result<(), Error> {
    let found = folder.symlink_metadata().map_err(|e| cannot(folder, e))?;
    let us = files::effective_uid();
    let shown = folder.display();
    let wrong = match (found.is_dir(), found.uid(), found.mode() & 0o022) {
        (false, ..) => "it is not a folder".to_string(),
        (true, owner, _) if owner != us => format!("it belongs to user {owner}, not to user {us}"),
        (true, _, writable) if writable != 0 => "other users may write to it".to_string(),
        _ => return Ok(()),
    };
    Err(Error::new(format!("cannot keep the rings in {shown}: {wrong}"))
        .help(format!("see who made it, and remove it: rm -r {shown}")))
}

fn cannot(path: &Path, error: io::Error) -> Error {
    Error::new(format!("cannot keep the rings in {}: {error}", path.display()))
}

/// What a killed recorder has left, or what a running one has pinned in case it is killed.
pub struct Left {
    folder: PathBuf,
    pub pid: u32,
    pub alive: bool,
}

/// The pins of all recorders.
pub fn left() -> Vec<Left> {
    left_in(&root())
}

/// What cannot be read is remembered: it is not known whether a recorder left something there.
fn left_in(root: &Path) -> Vec<Left> {
    let what = format!("what recorders left in {}", root.display());
    if missed::noting_unless_gone(&what, root.symlink_metadata()).is_none() {
        return Vec::new();
    }
    let checked = check_owner(root).map_err(|e| io::Error::other(e.message));
    let entries = missed::noting(&what, checked.and_then(|()| fs::read_dir(root)));
    let entries = entries.into_iter().flatten().filter_map(|entry| missed::noting(&what, entry));
    let mut all: Vec<Left> = entries.filter_map(|e| Left::new(e.path())).collect();
    all.sort_by_key(|l| l.pid);
    all
}

impl Left {
    fn new(folder: PathBuf) -> Option<Left> {
        let (pid, start) = folder.file_name()?.to_str()?.split_once('-')?;
        let (pid, start) = (pid.parse().ok()?, start.parse().ok()?);
        Some(Left { pid, alive: processes::is_still(pid, start), folder })
    }

    /// The facts that the recorder stored; `None` if it was killed before.
    ///
    /// # Errors
    /// It is not known whether there are any.
    pub fn facts(&self) -> Result<Option<Vec<u8>>, Error> {
        let path = self.folder.join(FACTS);
        let cannot = |why: &dyn std::fmt::Display| {
            Error::new(format!("cannot read {}: {why}", path.display()))
        };
        match path.symlink_metadata() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            found => found.map_err(|e| cannot(&e))?,
        };
        let map = self.map(FACTS)?;
        let facts = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).map_err(|e| cannot(&e))?;
        // An element that was never written has zeros.
        Ok(facts.filter(|facts| facts.iter().any(|byte| *byte != 0)))
    }

    /// Where they are pinned, for messages.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn map(&self, name: &str) -> Result<MapHandle, Error> {
        let path = self.folder.join(name);
        MapHandle::from_pinned_path(&path)
            .map_err(|e| Error::new(format!("cannot open {}: {e}", path.display())))
    }

    /// The same; `None` if the recorder has made none of this name.
    pub fn map_if_there(&self, name: &str) -> Result<Option<MapHandle>, Error> {
        match self.folder.join(name).symlink_metadata() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            _ => self.map(name).map(Some),
        }
    }

    /// (schema, name, program) of each.
    pub fn programs(&self) -> Vec<(String, String, OwnedFd)> {
        let what = "programs that a recorder left";
        let names = |folder: &Path| {
            let entries = missed::noting_unless_gone(what, fs::read_dir(folder));
            let entries = entries.into_iter().flatten().filter_map(|e| missed::noting(what, e));
            entries.filter_map(|e| e.file_name().into_string().ok()).collect::<Vec<_>>()
        };
        let folder = self.folder.join(PROGRAMS);
        let of_schema = |schema: String| {
            let folder = folder.join(&schema);
            let found = names(&folder).into_iter();
            found.filter_map(move |name| {
                let program = missed::noting(what, bpffs::get(&folder.join(&name)))?;
                Some((schema.clone(), name, program))
            })
        };
        names(&folder).into_iter().flat_map(of_schema).collect()
    }

    /// Removes the pins, which frees their memory.
    pub fn remove(self) {
        remove(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    #[test]
    fn facts_that_cannot_be_read_are_not_taken_for_missing_ones() {
        let all = tempfile::tempdir().unwrap();
        let left = Left { folder: all.path().into(), pid: 1, alive: false };
        assert!(left.facts().unwrap().is_none());
        // It is there, but no map.
        fs::write(all.path().join(FACTS), "").unwrap();
        assert!(left.facts().unwrap_err().message.contains(FACTS));
    }

    #[test]
    fn what_cannot_be_looked_at_is_remembered() {
        let all = tempfile::tempdir().unwrap();
        let folder = all.path().join("klogger");
        let said = || {
            let name = all.path().file_name().unwrap().to_string_lossy().into_owned();
            missed::take().into_iter().filter(|m| m.what.contains(&name)).collect::<Vec<_>>()
        };
        assert!(left_in(&folder).is_empty() && said().is_empty());
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        fs::create_dir(folder.join("7-9")).unwrap();
        let found = left_in(&folder);
        assert!(found.len() == 1 && found[0].pid == 7 && !found[0].alive && said().is_empty());
        assert!(found[0].map_if_there("none").unwrap().is_none());
        fs::write(folder.join("7-9/some"), "").unwrap();
        assert!(found[0].map_if_there("some").is_err());
        assert!(found[0].programs().is_empty() && said().is_empty());
        // Another user may write to it: what is in there is not trusted, and not nothing either.
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(left_in(&folder).is_empty());
        let said = said();
        assert!(said.len() == 1 && said[0].what.contains("other users may write to it"));
    }

    #[test]
    fn a_folder_of_another_user_is_not_used() {
        let all = tempfile::tempdir().unwrap();
        let folder = all.path().join("klogger");
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(check_owner(&folder).is_ok());
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o1777)).unwrap();
        assert!(check_owner(&folder).unwrap_err().message.ends_with("other users may write to it"));
        let link = all.path().join("link");
        symlink(&folder, &link).unwrap();
        assert!(check_owner(&link).unwrap_err().message.ends_with("it is not a folder"));
        if files::effective_uid() == 0 {
            chown(&folder, Some(65534), None).unwrap();
            assert!(check_owner(&folder).unwrap_err().message.contains("it belongs to user 65534"));
        }
    }
}
