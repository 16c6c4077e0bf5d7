// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The folders in which programs create their files, and how the recorder finds new files.

use super::facts::is_name;
use klogger_os as os;
use klogger_os::Error;
use klogger_os::files::FileId;
use klogger_os::inotify::Inotify;
use klogger_os::missed;
use klogger_os::outputs;
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Where every user can create a folder.
const SHARED: &str = "/dev/shm";
const PREFIX: &str = "klogger-";
/// No file takes longer to be created than this.
const UNFINISHED: Duration = Duration::from_secs(300);

/// A folder to which only one user may write.
pub struct Folder {
    pub path: PathBuf,
    pub file: File,
    pub uid: u32,
    /// It was found through a recorded process, whose names may lead anywhere: nothing is removed
    /// from it.
    pub lent: bool,
}

impl Folder {
    /// `owner`: who must own it, if known.
    pub fn open(path: &Path, owner: Option<u32>) -> io::Result<Folder> {
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        let uid = one_users_alone(&file)?;
        if owner.is_some_and(|owner| owner != uid) {
            return Err(not_alone());
        }
        Ok(Folder { path: path.into(), file, uid, lent: false })
    }

    /// Without one, if it cannot be looked at.
    fn id(&self) -> Option<FileId> {
        self.file.metadata().ok().map(|about| FileId::of(&about))
    }

    fn is_removed(&self) -> bool {
        self.file.metadata().is_ok_and(|about| about.nlink() == 0)
    }

    /// A folder as process `pid` sees it; `root` is the root of the process.
    pub fn of_process(pid: u32, root: &File, path: &Path) -> io::Result<Folder> {
        let file = os::files::open_folder_below(root, path)?;
        let uid = one_users_alone(&file)?;
        let shown =
            PathBuf::from(format!("/proc/{pid}/root")).join(path.strip_prefix("/").unwrap_or(path));
        Ok(Folder { path: shown, file, uid, lent: true })
    }

    /// The folder's path through our descriptor, which stays valid if the folder is renamed.
    fn held(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }

    /// Names of programs' files in it.
    pub fn names(&self) -> Vec<OsString> {
        let what = "a folder of programs";
        let entries = missed::noting_unless_gone(what, fs::read_dir(self.held()));
        let entry = |entry| missed::noting_unless_gone(what, entry);
        let names = entries.into_iter().flatten().filter_map(entry).map(|e| e.file_name());
        names.filter(|n| is_name(&n.to_string_lossy())).collect()
    }

    /// Removes files of programs that were killed while they created them. That takes a moment; a
    /// file that is minutes old and still has the name `.PID.IMAGE` will never become one of
    /// [`Folder::names`].
    fn sweep(&self) {
        let is_hidden =
            |name: &OsString| name.to_string_lossy().strip_prefix('.').is_some_and(is_name);
        let what = "a folder of programs";
        let entries = missed::noting_unless_gone(what, fs::read_dir(self.held()));
        let entry = |entry| missed::noting_unless_gone(what, entry);
        let entries = entries.into_iter().flatten().filter_map(entry);
        for entry in entries.filter(|e| is_hidden(&e.file_name())) {
            let made = entry.metadata().and_then(|m| m.modified());
            let made = missed::noting_unless_gone("an unfinished file of a program", made);
            let age = made.and_then(|made| made.elapsed().ok());
            if age.is_some_and(|age| age > UNFINISHED) {
                let _ = os::files::remove_in(&self.file, &entry.file_name());
            }
        }
    }
}

/// The owner of a folder to which no other user may write.
fn one_users_alone(folder: &File) -> io::Result<u32> {
    let about = folder.metadata()?;
    if about.mode() & 0o022 == 0 { Ok(about.uid()) } else { Err(not_alone()) }
}

fn not_alone() -> io::Error {
    io::Error::other("other users may write to it")
}

/// The folders of one user, or of all.
pub struct Places {
    /// `$KLOGGER_DIR`: if set, the only folder.
    pub chosen: Option<PathBuf>,
    /// `$XDG_RUNTIME_DIR`
    pub runtime: Option<PathBuf>,
    pub uid: u32,
}

impl Places {
    pub fn from_environment() -> Places {
        let variable = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        Places {
            chosen: variable("KLOGGER_DIR"),
            runtime: variable("XDG_RUNTIME_DIR"),
            uid: os::files::effective_uid(),
        }
    }

    /// Our own folders, the preferred one first.
    fn own(&self) -> Vec<PathBuf> {
        match &self.chosen {
            Some(chosen) => vec![chosen.clone()],
            None => {
                let shared = Path::new(SHARED).join(format!("{PREFIX}{}", self.uid));
                std::iter::once(shared)
                    .chain(self.runtime.as_ref().map(|r| r.join("klogger")))
                    .collect()
            }
        }
    }

    /// Makes the folder in which our own programs will create their files, so that it is watched
    /// before the first file appears.
    pub fn make(&self) -> Result<(), Error> {
        self.first(|path| make(path).and_then(|()| Folder::open(path, Some(self.uid))).map(drop))
    }

    /// Whether [`Places::make`] would find or could make a folder. Makes nothing.
    pub fn check(&self) -> Result<(), Error> {
        self.first(|path| match Folder::open(path, Some(self.uid)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let parent = path.parent().unwrap_or(Path::new("/"));
                parent.metadata().and_then(|_| os::files::check_writable(parent))
            }
            opened => opened.map(drop),
        })
    }

    /// Tries our own folders in turn.
    fn first(&self, attempt: impl Fn(&Path) -> io::Result<()>) -> Result<(), Error> {
        let mut error = None;
        for path in self.own() {
            match attempt(&path) {
                Ok(()) => return Ok(()),
                Err(e) => error.get_or_insert((path, e)),
            };
        }
        let (path, e) =
            error.unwrap_or_else(|| (PathBuf::new(), io::Error::other("no folder is possible")));
        Err(Error::new(format!(
            "cannot use {} for the files that programs share: {e}",
            path.display()
        ))
        .help("set KLOGGER_DIR to a folder in memory (tmpfs) that is yours alone (mode 0700)"))
    }

    /// All folders that exist now. Root sees those of all users.
    pub fn open(&self) -> Vec<Folder> {
        let mut folders: Vec<Folder> = self
            .own()
            .iter()
            .filter_map(|path| {
                let opened = Folder::open(path, self.owner_of(path));
                missed::noting_unless_gone(&path.display().to_string(), opened)
            })
            .collect();
        if self.sees_all() {
            let others = missed::noting_unless_gone(SHARED, fs::read_dir(SHARED));
            let entry = |entry| missed::noting_unless_gone(SHARED, entry);
            let others = others.into_iter().flatten().filter_map(entry);
            folders.extend(others.filter_map(|e| self.open_shared(&e.file_name())));
        }
        folders
    }

    fn owner_of(&self, path: &Path) -> Option<u32> {
        // Root may open the folder of any user.
        (self.uid != 0 || Some(path) != self.chosen.as_deref()).then_some(self.uid)
    }

    fn sees_all(&self) -> bool {
        self.uid == 0 && self.chosen.is_none()
    }

    /// A folder of another user in /dev/shm.
    fn open_shared(&self, name: &std::ffi::OsStr) -> Option<Folder> {
        let uid: u32 = name.to_str()?.strip_prefix(PREFIX)?.parse().ok()?;
        if uid == self.uid || !self.sees_all() {
            return None;
        }
        let opened = Folder::open(&Path::new(SHARED).join(name), Some(uid));
        missed::noting_unless_gone("a folder of another user's programs", opened)
    }
}

fn make(path: &Path) -> io::Result<()> {
    let made =
        outputs::Folder::of_name(path).and_then(|(parent, name)| parent.make_folder(&name, 0o700));
    match made {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        _ => Ok(()),
    }
}

/// A file that was found; whether it is a program's is not yet known.
#[derive(Clone)]
pub struct Found {
    pub folder: Arc<Folder>,
    pub name: OsString,
    /// The file that must be behind the name, if known.
    pub only: Option<FileId>,
}

/// Reports all files that appear in the folders, each at least once.
pub struct Watch {
    places: Places,
    inotify: Option<Inotify>,
    folders: HashMap<i32, Arc<Folder>>,
    /// Where new folders appear.
    shared: Option<i32>,
    /// Not all can be watched, so they are read again and again: what has been reported.
    known: Option<HashSet<(Option<FileId>, OsString)>>,
    full: Option<Full>,
}

/// Where programs could not make their files: how much room there was, and between which times (ns
/// of CLOCK_MONOTONIC) it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Full {
    pub path: PathBuf,
    pub bytes: u64,
    pub between: (u64, u64),
}

/// A program that finds less room may be unable to log.
const ROOM: u64 = 128 << 10;

impl Watch {
    /// The strings are warnings: what cannot be watched, and why.
    pub fn new(places: Places) -> (Watch, Vec<Found>, Vec<String>) {
        let mut notes = Vec::new();
        let inotify = Inotify::new().map_err(|e| notes.push(cannot_watch(INSTANCES, &e))).ok();
        let known = inotify.is_none().then(HashSet::new);
        let mut watch =
            Watch { places, inotify, folders: HashMap::new(), shared: None, known, full: None };
        if let (Some(inotify), true) = (&watch.inotify, watch.places.sees_all()) {
            match inotify.watch(Path::new(SHARED)) {
                Ok(number) => watch.shared = Some(number),
                Err(e) => watch.look_again(&e, &mut notes),
            }
        }
        let mut found = Vec::new();
        for folder in watch.places.open() {
            watch.add(folder, &mut found, &mut notes);
        }
        (watch, found, notes)
    }

    /// What was seen of a full file system, all in all.
    pub fn full(&self) -> Option<Full> {
        self.full.clone()
    }

    /// A program that has no room for its file cannot tell.
    fn look_for_room(&mut self) {
        let path = self.places.chosen.as_deref().unwrap_or(Path::new(SHARED));
        let room = missed::noting_unless_gone(&path.display().to_string(), os::files::room(path));
        let Some(bytes) = room.filter(|bytes| *bytes < ROOM) else { return };
        let now = os::monotonic_ns();
        let new = || Full { path: path.into(), bytes, between: (now, now) };
        let full = self.full.get_or_insert_with(new);
        full.bytes = full.bytes.min(bytes);
        full.between.1 = now;
    }

    /// From here on all folders are read again and again.
    fn look_again(&mut self, why: &io::Error, notes: &mut Vec<String>) {
        if self.known.is_none() {
            notes.push(cannot_watch(WATCHES, why));
            self.known = Some(HashSet::new());
        }
    }

    /// The folder is watched first, then read: a file that appears in between is reported twice
    /// rather than missed.
    fn add(&mut self, folder: Folder, found: &mut Vec<Found>, notes: &mut Vec<String>) {
        let folder = Arc::new(folder);
        match self.inotify.as_ref().map(|i| i.watch(&folder.held())) {
            Some(Ok(number)) => drop(self.folders.insert(number, folder.clone())),
            Some(Err(e)) => self.look_again(&e, notes),
            None => {}
        }
        folder.sweep();
        let id = folder.id();
        for name in folder.names() {
            let is_new = |known: &mut HashSet<_>| known.insert((id, name.clone()));
            if self.known.as_mut().is_none_or(is_new) {
                found.push(Found { folder: folder.clone(), name, only: None });
            }
        }
    }

    /// Folders that were removed are watched no more: other users make and remove theirs as often
    /// as they like.
    fn forget_removed(&mut self) {
        let Some(inotify) = &self.inotify else { return };
        self.folders.retain(|watch, folder| {
            let is_there = !folder.is_removed();
            if !is_there {
                inotify.forget(*watch);
            }
            is_there
        });
    }

    /// Waits until something may be new, or the timeout.
    pub fn wait(&self, timeout: Duration) {
        match &self.inotify {
            Some(inotify) => drop(os::poll_readable(&[inotify.as_fd()], timeout)),
            None => std::thread::sleep(timeout),
        }
    }

    /// New files. Empty folders that could not be watched are not looked at again.
    pub fn news(&mut self) -> Vec<Found> {
        self.look_for_room();
        let mut found = Vec::new();
        if self.known.is_some() {
            self.everything(&mut found);
        }
        for event in self.inotify.as_ref().map(Inotify::read).unwrap_or_default() {
            let name = OsString::from_vec(event.name);
            if event.watch < 0 {
                self.everything(&mut found);
            } else if Some(event.watch) == self.shared {
                self.forget_removed();
                if let Some(folder) = self.places.open_shared(&name) {
                    self.add_new(folder, &mut found);
                }
            } else if let Some(folder) =
                self.folders.get(&event.watch).filter(|_| is_name(&name.to_string_lossy()))
            {
                found.push(Found { folder: folder.clone(), name, only: None });
            }
        }
        found
    }

    /// After inotify lost events, or without it: reads all folders again.
    fn everything(&mut self, found: &mut Vec<Found>) {
        for folder in self.places.open() {
            self.add_new(folder, found);
        }
    }

    /// If it cannot be watched, it is read again and again, which the ledger says.
    fn add_new(&mut self, folder: Folder, found: &mut Vec<Found>) {
        let mut notes = Vec::new();
        self.add(folder, found, &mut notes);
        notes.into_iter().for_each(|note| missed::note("a new folder", &io::Error::other(note)));
    }
}

/// The limits of inotify, for each user.
const INSTANCES: &str = "max_user_instances";
const WATCHES: &str = "max_user_watches";

fn cannot_watch(limit: &str, error: &io::Error) -> String {
    let ms = super::WATCH_WAIT.as_millis();
    format!(
        "folders of programs cannot be watched, and are read every {ms} ms: {error} (see \
         /proc/sys/fs/inotify/{limit})"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn places(path: &Path) -> Places {
        Places { chosen: Some(path.into()), runtime: None, uid: os::files::effective_uid() }
    }

    fn names(found: Vec<Found>) -> Vec<String> {
        let mut names: Vec<_> =
            found.into_iter().map(|f| f.name.to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn files_are_found_that_were_there_or_come_later() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("k");
        places(&path).make().unwrap();
        places(&path).make().unwrap();
        fs::write(path.join("12.ab"), "").unwrap();
        fs::write(path.join(".13.ab"), "").unwrap();
        let (mut watch, found, notes) = Watch::new(places(&path));
        assert_eq!((names(found), notes), (vec!["12.ab".to_string()], vec![]));
        fs::rename(path.join(".13.ab"), path.join("13.ab")).unwrap();
        watch.wait(Duration::from_secs(10));
        assert_eq!(names(watch.news()), ["13.ab"]);
        assert!(watch.news().is_empty());
    }

    #[test]
    fn a_file_left_unfinished_is_removed() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("k");
        places(&path).make().unwrap();
        for (name, seconds) in [(".13.ab", 1000), (".14.ab", 0), (".other", 1000), ("15.ab", 1000)]
        {
            let file = File::create(path.join(name)).unwrap();
            file.set_modified(std::time::SystemTime::now() - Duration::from_secs(seconds)).unwrap();
        }
        let (_watch, found, _) = Watch::new(places(&path));
        assert_eq!(names(found), ["15.ab"]);
        let left = |name: &str| path.join(name).exists();
        assert!(!left(".13.ab") && left(".14.ab") && left(".other") && left("15.ab"));
    }

    #[test]
    fn a_folder_that_other_users_may_write_to_is_not_used() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("k");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        let error = places(&path).make().unwrap_err();
        assert!(error.message.contains("other users may write to it"), "{error}");
        assert!(places(&path).open().is_empty());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        symlink(&path, outer.path().join("link")).unwrap();
        assert!(places(&outer.path().join("link")).make().is_err());
        assert!(Folder::open(&path, Some(os::files::effective_uid() + 1)).is_err());
    }
}
