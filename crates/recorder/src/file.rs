// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The log's file: created without damage to existing files, and removed if the recording does not
//! start.

use crate::destination::{check_stdout, is_stdout};
use klogger_os::Error;
use klogger_os::files::{cannot_write, discards, folder_of};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

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
    let folder = folder_of(path);
    let cannot = |why: String| Error::new(format!("cannot write {}: {why}", path.display()));
    let shown = folder.display();
    match folder.metadata() {
        Ok(found) if !found.is_dir() => {
            Err(cannot(format!("{shown} is not a directory")).help(help))
        }
        Err(e) => Err(cannot_write(path, e)),
        Ok(_) => path.symlink_metadata().map_or(Ok(()), |found| refuse(path, &found)),
    }
}

/// Creates the log file; true if an existing one was kept as NAME.old. An existing file is never
/// written to, except /dev/null: in a folder that all users may write to, another user may have put
/// it there.
pub fn open(path: &Path, mode: u32) -> Result<(File, bool), Error> {
    let before = path.symlink_metadata().ok();
    if let Some(found) = &before {
        refuse(path, found)?;
        if found.file_type().is_char_device() {
            let file = OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW).open(path);
            return Ok((file.map_err(|e| cannot_write(path, e))?, false));
        }
    }
    let keep_old = before.as_ref().is_some_and(|m| m.len() > 0);
    let cleared = match before {
        Some(_) if keep_old => fs::rename(path, old_name(path)),
        Some(_) => fs::remove_file(path),
        None => Ok(()),
    };
    let file = cleared
        .and_then(|()| OpenOptions::new().write(true).create_new(true).mode(mode).open(path));
    let file = file.map_err(|e| cannot_write(path, e))?;
    // The mode as requested, whatever the umask.
    file.set_permissions(Permissions::from_mode(mode)).map_err(|e| cannot_write(path, e))?;
    // Where files cannot be locked, readers cannot distinguish this log from one whose recorder was
    // killed.
    let _ = klogger_log::lock::lock(&file);
    Ok((file, keep_old))
}

/// Creates the file of a further segment, which must not exist. It gets its name when it is locked:
/// whoever follows the recording sees no file that nobody writes.
pub fn create(path: &Path, mode: u32) -> io::Result<File> {
    let nameless = part_of(path);
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&nameless)?;
    let named = file.set_permissions(Permissions::from_mode(mode)).and_then(|()| {
        let _ = klogger_log::lock::lock(&file);
        fs::hard_link(&nameless, path)
    });
    fs::remove_file(&nameless)?;
    named.map(|()| file)
}

/// Whether a folder for segments can be made at `path`, or is there and empty.
pub fn check_folder(path: &Path) -> Result<(), Error> {
    let cannot = |why: &str| {
        Error::new(format!("cannot record segments into {}: {why}", path.display()))
            .help("choose another folder with --dir DIR; it is created")
    };
    match path.symlink_metadata() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => match folder_of(path).metadata() {
            Ok(found) if found.is_dir() => Ok(()),
            Ok(_) => Err(cannot("the folder that it would be in is not a directory")),
            Err(e) => Err(cannot_write(path, e)),
        },
        Err(e) => Err(cannot_write(path, e)),
        Ok(found) if found.is_symlink() => Err(cannot("it is a symbolic link")),
        Ok(found) if !found.is_dir() => Err(cannot("it is not a directory")),
        Ok(_) => match fs::read_dir(path).map(|mut entries| entries.next().is_none()) {
            Ok(true) => Ok(()),
            Ok(false) => Err(cannot("it is not empty")),
            Err(e) => Err(cannot_write(path, e)),
        },
    }
}

/// Makes the folder for segments; true if it was not there.
pub fn make_folder(path: &Path) -> Result<bool, Error> {
    check_folder(path)?;
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(e) => Err(cannot_write(path, e)),
    }
}

/// A log must be a regular file, or a device that discards it. Opening a pipe would wait for a
/// reader, a terminal cannot show a log, and what cannot be truncated could not be completed on a
/// full disk.
fn refuse(path: &Path, found: &fs::Metadata) -> Result<(), Error> {
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

/// Undoes open() if the recording did not start. A device stays.
pub fn discard(path: &Path, kept_old: bool) {
    if path.symlink_metadata().is_ok_and(|m| m.is_file()) {
        let _ = match kept_old {
            true => fs::rename(old_name(path), path),
            false => fs::remove_file(path),
        };
    }
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

/// What is written under another name first, so that there is a whole file or none.
pub fn part_of(path: &Path) -> PathBuf {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    part.into()
}

/// Gives a complete file its name; an existing file is kept as NAME.old.
pub fn complete(part: &Path, path: &Path) -> std::io::Result<()> {
    if path.symlink_metadata().is_ok_and(|found| found.is_file() && found.len() > 0) {
        fs::rename(path, old_name(path))?;
    }
    fs::rename(part, path)
}

fn old_name(path: &Path) -> OsString {
    let mut old = path.as_os_str().to_owned();
    old.push(".old");
    old
}

#[cfg(test)]
mod tests {
    use super::*;
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
            let (file, kept_old) = open(&log, PRIVATE).unwrap();
            file.set_len(10).unwrap();
            assert_eq!(
                (fs::read_to_string(&victim).unwrap().as_str(), kept_old),
                (text, !text.is_empty())
            );
            fs::remove_file(&log).unwrap();
        }
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
