// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Modules that are kept for the next recording. Root loads them into its kernel, so no other user
//! may be able to change them, and their digests are checked.

use klogger_os::Error;
use klogger_os::files;
use klogger_os::outputs::{Folder, Old};
use sha2::{Digest, Sha256};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// In each folder of modules: their digests, as sha256sum writes them.
const DIGESTS: &str = "SHA256SUMS";
const STICKY: u32 = 0o1000;

pub(super) fn folder() -> Result<PathBuf, Error> {
    let cache = files::cache_folder().ok_or_else(|| {
        Error::new("there is no folder in which to keep modules")
            .help("set HOME, or XDG_CACHE_HOME; or use 'klogger build -o DIR'")
    })?;
    Ok(cache.join("modules"))
}

/// Makes the folder, and fails if users other than us and root could change it.
pub(super) fn make(folder: &Path) -> Result<(), Error> {
    let cannot =
        |e: io::Error| Error::new(format!("cannot keep modules in {}: {e}", folder.display()));
    // The owner of the folder in which it is made is checked first.
    let mut there = Path::new("/");
    for above in folder.ancestors() {
        if files::is_there(above).map_err(cannot)? {
            there = above;
            break;
        }
    }
    check(&there.canonicalize().map_err(cannot)?)?;
    Folder::make_with(folder, 0o700).map_err(cannot)?;
    check(&folder.canonicalize().map_err(cannot)?)
}

/// The path contains no links. In a folder with the sticky bit, such as /tmp, other users cannot
/// replace our files.
fn check(path: &Path) -> Result<(), Error> {
    let us = files::effective_uid();
    for folder in path.ancestors() {
        let found = folder.symlink_metadata();
        let found =
            found.map_err(|e| Error::new(format!("cannot look at {}: {e}", folder.display())))?;
        let wrong = match (found.uid(), found.mode() & 0o022, found.mode() & STICKY) {
            (owner, ..) if owner != us && owner != 0 => format!("belongs to user {owner}"),
            (_, 0, _) => continue,
            (_, _, STICKY) if folder != path => continue,
            _ => "can be written to by other users".into(),
        };
        return Err(Error::new(format!(
            "modules are not loaded from {}: {} {wrong}",
            path.display(),
            folder.display()
        ))
        .help(
            "set XDG_CACHE_HOME to a folder of your own; or use 'klogger build -o DIR', and \
               --modules DIR",
        ));
    }
    Ok(())
}

/// Whether all files exist and match the digests of [`seal`].
pub(super) fn is_sound<'a>(folder: &Path, files: impl Iterator<Item = &'a PathBuf>) -> bool {
    match (fs::read_to_string(folder.join(DIGESTS)), digests(files)) {
        (Ok(kept), Ok(found)) => check(folder).is_ok() && kept == found,
        _ => false,
    }
}

pub(super) fn seal<'a>(
    folder: &Folder,
    files: impl Iterator<Item = &'a PathBuf>,
) -> Result<(), Error> {
    let written = digests(files)
        .and_then(|text| folder.write(DIGESTS.as_ref(), 0o600, Old::Replace, text.as_bytes()));
    let shown = folder.path().display();
    written.map_err(|e| Error::new(format!("cannot keep modules in {shown}: {e}")))
}

fn digests<'a>(files: impl Iterator<Item = &'a PathBuf>) -> io::Result<String> {
    let line = |file: &PathBuf| {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(format!("{}  {name}\n", hex(Sha256::new_with_prefix(fs::read(file)?))))
    };
    files.map(line).collect()
}

pub(super) fn hex(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown};

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_folder_that_other_users_can_change_is_not_used() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().join("cache/modules");
        assert!(make(&folder).is_ok());
        for (which, bits, wrong) in
            [(base.path(), 0o777, true), (base.path(), 0o1777, false), (&folder, 0o1777, true)]
        {
            mode(which, bits);
            assert_eq!(make(&folder).is_err(), wrong, "{} {bits:o}", which.display());
        }
        mode(&folder, 0o700);
        if files::effective_uid() == 0 {
            chown(folder.parent().unwrap(), Some(65534), None).unwrap();
            let error = make(&folder).unwrap_err();
            assert!(error.message.ends_with("cache belongs to user 65534"), "{error}");
        }
    }

    #[test]
    fn modules_that_were_changed_are_built_again() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["a.ko", "b.ko"].map(|name| folder.path().join(name));
        files.iter().for_each(|f| fs::write(f, "ELF").unwrap());
        assert!(!is_sound(folder.path(), files.iter()));
        seal(&Folder::open(folder.path()).unwrap(), files.iter()).unwrap();
        assert!(is_sound(folder.path(), files.iter()));
        fs::write(&files[1], "ELF, but another").unwrap();
        assert!(!is_sound(folder.path(), files.iter()));
    }
}
