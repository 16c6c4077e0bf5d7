// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The directory that an export makes: it is complete or does not exist, and never replaces
//! anything else; and the errors of exports.

use klogger_log::damage::Damage;
use klogger_os::files::folder_of;
use klogger_os::outputs::{Folder, PartialFolder};
use parquet::errors::ParquetError;
use std::ffi::OsString;
use std::fmt;
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

/// Another process may make the same export just as often at the same time.
const TRIES: u32 = 64;

/// Where an export is made.
pub struct Place {
    parent: Folder,
    name: OsString,
    dir: PathBuf,
}

impl Place {
    /// Makes the folders that it is in.
    pub fn find(dir: &Path) -> Result<Place, Error> {
        let unwritable = |e| Error::Unwritable(dir.to_path_buf(), e);
        if dir.file_name().is_none() {
            return Err(unwritable(ErrorKind::InvalidFilename.into()));
        }
        Folder::make(folder_of(dir)).map_err(unwritable)?;
        let (parent, name) = Folder::of(dir).map_err(unwritable)?;
        Ok(Place { parent, name, dir: dir.to_path_buf() })
    }

    /// The folder that is there. That of another user is neither believed nor replaced.
    pub fn there(&self) -> Result<Option<Folder>, Error> {
        let unwritable = |e| Error::Unwritable(self.dir.clone(), e);
        match self.parent.look(&self.name).map_err(unwritable)? {
            None => Ok(None),
            Some(found) if !found.is_dir() => Err(Error::Occupied(self.dir.clone())),
            Some(_) => {
                let folder = self.parent.folder(&self.name).map_err(unwritable)?;
                folder.check_ours().map_err(unwritable)?;
                Ok(Some(folder))
            }
        }
    }

    /// Makes the folder: `fill` fills a new one, which then takes the place of the one there. What
    /// that may be is said by `may`, which is asked before, and again if it has changed: false if
    /// it need not be replaced. Returns what `fill` has, or `None` if there was no need.
    pub fn make<T>(
        &self,
        may: impl Fn(&Folder) -> Result<bool, Error>,
        fill: impl FnOnce(&Folder) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        let unwritable = |e| Error::Unwritable(self.dir.clone(), e);
        if !self.there()?.as_ref().map_or(Ok(true), &may)? {
            return Ok(None);
        }
        let mut made = PartialFolder::begin(&self.parent, &self.name, 0o777).map_err(unwritable)?;
        let filled = fill(made.folder())?;
        for _ in 0..TRIES {
            let old = self.there()?;
            if !old.as_ref().map_or(Ok(true), &may)? {
                break;
            }
            match made.complete(old.as_ref()) {
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                done => return done.map(|()| Some(filled)).map_err(unwritable),
            }
        }
        // Somebody else has made the same.
        Ok(Some(filled))
    }
}

/// Whether a folder can be replaced without loss.
pub fn is_empty(folder: &Folder) -> bool {
    folder.names().is_ok_and(|names| names.is_empty())
}
