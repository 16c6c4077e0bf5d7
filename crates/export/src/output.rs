// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The directory that an export makes: it is complete or does not exist, and never replaces
//! anything else; and the errors of exports.

use klogger_log::damage::Damage;
use klogger_os::files::folder_of;
use parquet::errors::ParquetError;
use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The result of an export.
#[derive(Clone, Debug)]
pub struct Export {
    pub dir: PathBuf,
    /// The tables existed already, and match the log.
    pub fresh: bool,
    pub rows: u64,
    /// Damage of the log that was found; empty if the tables existed already.
    pub damage: Vec<Damage>,
}

#[derive(Debug)]
pub enum Error {
    /// The directory cannot be written.
    Unwritable(PathBuf, io::Error),
    /// The directory exists and was not made by klogger.
    Occupied(PathBuf),
    /// The directory has an earlier export.
    Exists(PathBuf),
    /// A trace could not be written.
    Unwritten(PathBuf, io::Error),
    /// A table could not be written.
    Table(PathBuf, ParquetError),
    /// The log could not be read.
    Log(io::Error),
}

impl Error {
    /// What the user can do about it.
    pub fn remedy(&self) -> &'static str {
        match self {
            Error::Unwritable(..) => "name a writable directory with -o DIR",
            Error::Occupied(_) => "name a directory that does not exist yet with -o DIR",
            Error::Exists(_) => "replace it with --force, or name another directory with -o DIR",
            Error::Table(..) | Error::Unwritten(..) => {
                "free some space, or name a directory on another file system with -o DIR"
            }
            Error::Log(_) => "check that the log still exists",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unwritable(path, error) | Error::Unwritten(path, error) => {
                write!(f, "cannot write {}: {error}", path.display())
            }
            Error::Exists(path) => write!(f, "{} exists", path.display()),
            Error::Occupied(path) => {
                write!(f, "{} exists, and was not made by klogger export", path.display())
            }
            Error::Table(path, error) => {
                write!(f, "cannot write a table in {}: {error}", path.display())
            }
            Error::Log(error) => write!(f, "cannot read the log: {error}"),
        }
    }
}

impl std::error::Error for Error {}

/// `x.klog-parquet` for `x.klog` and `-parquet`.
pub fn beside(log: &Path, suffix: &str) -> PathBuf {
    // `.` and `..` have none.
    let named = log.file_name().is_none().then(|| log.canonicalize().ok()).flatten();
    let log = named.as_deref().unwrap_or(log);
    let mut name = log.file_name().unwrap_or_default().to_os_string();
    name.push(suffix);
    log.with_file_name(name)
}

/// Whether `dir` can be replaced without loss.
pub fn is_empty(dir: &Path) -> bool {
    match fs::read_dir(dir) {
        Ok(mut entries) => entries.next().is_none(),
        // A file of that name counts; a path that cannot be reached fails when it is created.
        Err(_) => fs::symlink_metadata(dir).is_err(),
    }
}

/// A directory that is removed when dropped, unless it has replaced the target.
pub struct Temporary {
    pub path: PathBuf,
}

impl Temporary {
    /// Creates it beside `dir`, so that it can be renamed to it.
    pub fn create(dir: &Path) -> Result<Temporary, Error> {
        let unwritable = |e| Error::Unwritable(dir.to_path_buf(), e);
        let parent = folder_of(dir);
        fs::create_dir_all(parent).map_err(unwritable)?;
        let name = dir.file_name().ok_or_else(|| unwritable(ErrorKind::InvalidFilename.into()))?;
        let prefix = format!(".{}.tmp-", name.to_string_lossy());
        remove_orphans(parent, &prefix);
        let path = parent.join(format!("{prefix}{}", std::process::id()));
        fs::create_dir_all(&path).map_err(unwritable)?;
        Ok(Temporary { path })
    }

    pub fn replace(self, dir: &Path) -> Result<(), Error> {
        let unwritable = |e| Error::Unwritable(dir.to_path_buf(), e);
        let old = self.path.with_extension("old");
        let had_old = fs::rename(dir, &old).is_ok();
        let renamed = fs::rename(&self.path, dir);
        if had_old {
            match &renamed {
                Ok(()) => fs::remove_dir_all(&old).map_err(unwritable)?,
                Err(_) => fs::rename(&old, dir).map_err(unwritable)?,
            }
        }
        renamed.map_err(unwritable)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // After `replace` it no longer exists under this name.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes what a killed export left behind.
fn remove_orphans(parent: &Path, prefix: &str) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid = name
            .to_str()
            .and_then(|n| n.strip_prefix(prefix))
            .and_then(|rest| rest.split('.').next());
        let gone = pid.is_some_and(|pid| {
            pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists()
        });
        if gone && Path::new("/proc/self").exists() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
