// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The log's file: created without damage to existing files, and removed if the recording does not
//! start.

use crate::destination::{check_stdout, is_stdout};
use crate::hung::{Watched, watched};
use klogger_os::files::{cannot_write, discards, folder_of};
use klogger_os::outputs::{Folder, Old, Partial};
use klogger_os::{Error, answers};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

/// The mode of a log unless the user chooses one: a log contains data of other processes.
pub const PRIVATE: u32 = 0o600;

/// Whether a log can be made at `path`, as far as that can be seen before anything is recorded.
pub fn check(path: &Path) -> Result<(), Error> {
    let help = "choose another file with -o FILE";
    if is_stdout(path) {
        return check_stdout();
    }
    if path.file_name().is_none() {
        let error = Error::new(format!("'{}' is not the name of a file", path.display()));
        return Err(error.help(help));
    }
    check_answers(path)?;
    let folder = folder_of(path);
    let cannot = |why: String| Error::new(format!("cannot write {}: {why}", path.display()));
    let shown = folder.display();
    match folder.metadata() {
        Ok(found) if !found.is_dir() => {
            Err(cannot(format!("{shown} is not a directory")).help(help))
        }
        Err(e) => Err(cannot_write(path, e)),
        Ok(_) => place(path).and_then(|(folder, name)| look(&folder, &name, path)).map(drop),
    }
}

/// Whether the file system of the folder of `path` answers, and that of what is there.
fn check_answers(path: &Path) -> Result<(), Error> {
    answers::check_output(path).map_err(|e| cannot_write(path, e))
}

/// The folder of a log, and its name there.
fn place(path: &Path) -> Result<(Folder, OsString), Error> {
    Folder::of_name(path).map_err(|e| cannot_write(path, e))
}

/// What is there already, if a log can take its place.
fn look(folder: &Folder, name: &OsStr, path: &Path) -> Result<Option<Metadata>, Error> {
    let found = folder.look(name).map_err(|e| cannot_write(path, e))?;
    let Some(found) = found else { return Ok(None) };
    refuse(path, &found)?;
    if found.is_file() {
        folder.check_free(name).map_err(|e| cannot_write(path, e))?;
    }
    Ok(Some(found))
}

/// Where a log has been begun.
#[derive(Debug)]
pub struct Place {
    folder: Folder,
    name: OsString,
    /// An existing file has the name NAME.old.
    pub kept_old: bool,
    /// What was made; `None`: a device.
    made: Option<Metadata>,
}

impl Place {
    /// Undoes [`open`] if the recording did not start. A device stays, and so does the log of
    /// another recording, which has taken its name meanwhile.
    pub fn discard(&self) {
        if !self.made.as_ref().is_some_and(|made| self.folder.is_here(&self.name, made)) {
            return;
        }
        let _ = match self.kept_old {
            true => self.folder.put_back_old(&self.name),
            false => self.folder.remove(&self.name),
        };
    }
}

/// Creates the log file. An existing file is never written to, except /dev/null: in a folder that
/// all users may write to, another user may have put it there.
pub fn open(path: &Path, mode: u32) -> Result<(File, Place), Error> {
    check(path)?;
    let (folder, name) = place(path)?;
    open_in(folder, name, path, mode)
}

/// The same in a folder that is open. `path`: the file's, for messages.
pub fn open_in(
    folder: Folder,
    name: OsString,
    path: &Path,
    mode: u32,
) -> Result<(File, Place), Error> {
    let cannot = |e| cannot_write(path, e);
    let before = look(&folder, &name, path)?;
    if before.as_ref().is_some_and(|found| found.file_type().is_char_device()) {
        let file = folder.open_special(&name).map_err(cannot)?;
        return Ok((file, Place { folder, name, kept_old: false, made: None }));
    }
    let kept_old = before.as_ref().is_some_and(|m| m.len() > 0);
    let cleared = match before {
        Some(_) if kept_old => folder.keep_old(&name),
        Some(_) => folder.remove(&name),
        None => Ok(()),
    };
    let file = cleared.and_then(|()| folder.create(&name, mode)).map_err(cannot)?;
    // The mode as requested, whatever the umask.
    file.set_permissions(Permissions::from_mode(mode)).map_err(cannot)?;
    // Where files cannot be locked, readers cannot distinguish this log from one whose recorder was
    // killed.
    let _ = klogger_log::lock::lock(&file);
    let made = Some(file.metadata().map_err(cannot)?);
    Ok((file, Place { folder, name, kept_old, made }))
}

/// Creates the file of a further segment, which must not exist. It gets its name when it is locked:
/// whoever follows the recording sees no file that nobody writes.
pub fn create(folder: &Folder, name: &OsStr, mode: u32) -> io::Result<File> {
    let mut partial = Partial::begin(folder, name, mode)?;
    partial.set_mode(mode)?;
    let _ = klogger_log::lock::lock(partial.file());
    let file = partial.file().try_clone()?;
    partial.complete(Old::Refuse)?;
    Ok(file)
}

/// A log that has no name until it is complete: nothing stands there until then, and what stood
/// there stays as it was. Whether one of its calls hangs is looked at.
pub struct Whole {
    path: Arc<Path>,
    file: File,
    /// `None`: a device that discards it.
    partial: Option<Partial>,
}

impl Whole {
    pub fn begin(path: &Path, mode: u32) -> Result<Whole, Error> {
        watched(path, || Whole::make(path, mode))
    }

    fn make(path: &Path, mode: u32) -> Result<Whole, Error> {
        check(path)?;
        let whole = |file, partial| Whole { path: path.into(), file, partial };
        let cannot = |e| cannot_write(path, e);
        let (folder, name) = place(path)?;
        if look(&folder, &name, path)?.is_some_and(|found| found.file_type().is_char_device()) {
            let file = folder.open_special(&name).map_err(cannot)?;
            return Ok(whole(file, None));
        }
        let mut partial = Partial::begin(&folder, &name, mode).map_err(cannot)?;
        partial.set_mode(mode).map_err(cannot)?;
        let file = partial.file().try_clone().map_err(cannot)?;
        Ok(whole(file, Some(partial)))
    }

    /// What is written to.
    pub fn file(&self) -> io::Result<Watched<File>> {
        Ok(Watched::new(self.path.clone(), self.file.try_clone()?))
    }

    /// Gives it its name. `old`: what becomes of a file that has it.
    pub fn complete(self, old: Old) -> io::Result<()> {
        let Whole { path, partial, .. } = self;
        watched(path, || partial.map_or(Ok(()), |partial| partial.complete(old)))
    }

    /// The same. When this returns, the disk has the log and its name.
    pub fn complete_synced(self, old: Old) -> io::Result<()> {
        let Whole { path, partial, .. } = self;
        watched(path, || partial.map_or(Ok(()), |partial| partial.complete_synced(old)))
    }
}

/// What is found at the place of a folder for segments: the folder that it is in, its name there,
/// and itself, if it is there and empty.
fn find_folder(path: &Path) -> Result<(Folder, OsString, Option<Folder>), Error> {
    let cannot = |why: &str| {
        Error::new(format!("cannot record segments into {}: {why}", path.display()))
            .help("choose another folder with --dir DIR; it is created")
    };
    check_answers(path)?;
    let failed = |e: io::Error| match e.kind() {
        io::ErrorKind::Other => cannot(&e.to_string()),
        _ => cannot_write(path, e),
    };
    let (parent, name) = match path.file_name() {
        Some(_) => Folder::of_name(path).map_err(|e| match e.kind() {
            io::ErrorKind::NotADirectory => {
                cannot("the folder that it would be in is not a directory")
            }
            _ => failed(e),
        })?,
        // `.` or `..`
        None => (Folder::open(path).map_err(failed)?, OsString::from(".")),
    };
    match parent.look(&name).map_err(failed)? {
        None => Ok((parent, name, None)),
        Some(found) if found.is_symlink() => Err(cannot("it is a symbolic link")),
        Some(found) if !found.is_dir() => Err(cannot("it is not a directory")),
        Some(_) => {
            let folder = parent.folder(&name).map_err(failed)?;
            folder.check_ours().map_err(failed)?;
            match folder.names().map_err(failed)?.is_empty() {
                true => Ok((parent, name, Some(folder))),
                false => Err(cannot("it is not empty")),
            }
        }
    }
}

/// Whether a folder for segments can be made at `path`, or is there, ours and empty.
pub fn check_folder(path: &Path) -> Result<(), Error> {
    find_folder(path).map(drop)
}

/// A folder for segments, which is held from here on.
pub struct MadeFolder {
    pub folder: Folder,
    parent: Folder,
    name: OsString,
    /// It was not there.
    made: bool,
}

impl MadeFolder {
    pub fn new(path: &Path) -> Result<MadeFolder, Error> {
        let (parent, name, found) = find_folder(path)?;
        let made = found.is_none();
        let folder = found.map_or_else(|| parent.make_folder(&name, 0o700), Ok);
        let folder = folder.map_err(|e| cannot_write(path, e))?;
        Ok(MadeFolder { folder, parent, name, made })
    }

    /// Removes it if it was not there before, and is empty.
    pub fn abandon(&self) {
        if self.made {
            let _ = self.parent.remove_folder(&self.name);
        }
    }
}

/// A log must be a regular file, or a device that discards it. Opening a pipe would wait for a
/// reader, a terminal cannot show a log, and what cannot be truncated could not be completed on a
/// full disk.
fn refuse(path: &Path, found: &Metadata) -> Result<(), Error> {
    let kind = found.file_type();
    let (what, help) = if kind.is_dir() {
        ("a directory", format!("name a file in it: -o {}", path.join("x.klog").display()))
    } else if kind.is_symlink() {
        ("a symbolic link, which is not followed", "name with -o the file that is meant".into())
    } else if kind.is_fifo() || kind.is_socket() {
        ("a pipe or a socket, and a log must be a file", "choose another file with -o FILE".into())
    } else if kind.is_block_device() {
        ("a disk", "choose a file with -o FILE".into())
    } else if kind.is_char_device() && !discards(found) {
        ("a device, and a log must be a file", "choose a file with -o FILE".into())
    } else {
        return Ok(());
    };
    Err(Error::new(format!("cannot write {}: it is {what}", path.display())).help(help))
}

/// Whether a new regular file can be made at `path`, which may replace one.
pub fn check_regular(path: &Path) -> Result<(), Error> {
    check(path)?;
    if path.symlink_metadata().is_ok_and(|found| !found.is_file()) {
        let error = Error::new(format!("cannot write {}: it is a device", path.display()));
        return Err(error.help("choose a file with -o FILE"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn mode_of(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn existing_files_are_not_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let (log, victim) = (folder.path().join("x.klog"), folder.path().join("victim"));
        for text in ["", "precious"] {
            fs::write(&victim, text).unwrap();
            symlink(&victim, &log).unwrap();
            assert!(open(&log, PRIVATE).unwrap_err().message.contains("symbolic link"));
            fs::remove_file(&log).unwrap();
            // A hard link to the same file.
            fs::hard_link(&victim, &log).unwrap();
            let (file, place) = open(&log, PRIVATE).unwrap();
            file.set_len(10).unwrap();
            assert_eq!(
                (fs::read_to_string(&victim).unwrap().as_str(), place.kept_old),
                (text, !text.is_empty())
            );
            fs::remove_file(&log).unwrap();
        }
    }

    #[test]
    fn the_log_of_another_recording_is_not_discarded() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("x.klog");
        for before in ["", "precious"] {
            fs::write(&log, before).unwrap();
            let (mut file, place) = open(&log, PRIVATE).unwrap();
            io::Write::write_all(&mut file, b"first").unwrap();
            let (mut other, _) = open(&log, PRIVATE).unwrap();
            io::Write::write_all(&mut other, b"second").unwrap();
            place.discard();
            assert_eq!(fs::read_to_string(&log).unwrap(), "second");
        }
        let (_, place) = open(&log, PRIVATE).unwrap();
        place.discard();
        assert_eq!(fs::read_to_string(&log).unwrap(), "second");
    }

    #[test]
    fn what_no_log_can_be_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let message = |path: &Path| check(path).unwrap_err().message;
        let missing = folder.path().join("no");
        assert_eq!(
            message(&missing.join("x.klog")),
            format!("cannot write {0}/x.klog: there is no directory {0}", missing.display())
        );
        assert_eq!(
            message(&file.join("x.klog")),
            format!("cannot write {0}/x.klog: {0} is not a directory", file.display())
        );
        let link = folder.path().join("link");
        symlink(&missing, &link).unwrap();
        let error = check(&link.join("x.klog")).unwrap_err();
        assert!(error.help.unwrap().contains("is a link to nothing; choose"));
        for device in ["/dev/full", "/dev/tty", "/dev/zero"] {
            assert_eq!(
                message(Path::new(device)),
                format!("cannot write {device}: it is a device, and a log must be a file")
            );
        }
        assert_eq!(message(Path::new("")), "'' is not the name of a file");
        assert!(check(&file).is_ok() && check(Path::new("x.klog")).is_ok());
        assert!(check(Path::new("/dev/null")).is_ok());
    }

    #[test]
    fn a_log_has_the_mode_that_was_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("x.klog");
        for mode in [PRIVATE, 0o666] {
            open(&log, mode).unwrap();
            assert_eq!(mode_of(&log), mode);
        }
        assert!(open(folder.path(), PRIVATE).unwrap_err().message.ends_with("it is a directory"));
    }
}
