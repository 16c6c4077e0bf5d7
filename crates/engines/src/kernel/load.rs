// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Loads the modules that a recording needs, and unloads them when it is over.

use super::device::{Device, PATH};
use klogger_os::Error;
use klogger_os::{machine, modules};
use klogger_toolchain::host_kernel;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

pub const CORE: &str = "klogger";
const SIGNING: &str = "sign the module with a key that this machine trusts (mokutil --import \
                       KEY.der), or switch Secure \
                       Boot off; docs/kernel-engine.md says how";

/// The modules that we have loaded. They are unloaded in reverse order when this is dropped.
pub struct Modules {
    folder: Option<PathBuf>,
    loaded: Vec<String>,
}

/// The name of a schema's module.
pub fn module_of(schema: &str) -> String {
    format!("{CORE}_{schema}")
}

impl Modules {
    /// `folder`: where the modules' files are.
    pub fn new(folder: Option<&Path>) -> Modules {
        Modules { folder: folder.map(Path::to_path_buf), loaded: Vec::new() }
    }

    /// Opens the device; if there is none, loads the core module first.
    pub fn open_device(&mut self) -> Result<Device, Error> {
        match Device::open() {
            Err(e) if e.kind() == ErrorKind::NotFound => {
                self.load(CORE)?;
                Device::open().map_err(cannot_open)
            }
            opened => opened.map_err(cannot_open),
        }
    }

    /// Loads a module from its file. If it is loaded already, nothing happens.
    pub fn load(&mut self, name: &str) -> Result<(), Error> {
        let Some(folder) = &self.folder else {
            return Err(Error::new(format!("the kernel has no module '{name}'"))
                .help("make it with 'klogger build', and name its folder with --modules DIR"));
        };
        let path = folder.join(format!("{name}.ko"));
        let file = File::open(&path).map_err(|e| {
            Error::new(format!("cannot open the module {}: {e}", path.display())).help(
                "'klogger build -s SCHEMA -o DIR' makes all modules that a recording needs; \
                 --modules DIR uses them",
            )
        })?;
        match modules::load(&file) {
            Ok(()) => {
                self.loaded.push(name.into());
                Ok(())
            }
            Err(e) if e.raw_os_error() == Some(libc::EEXIST) => Ok(()),
            Err(e) => Err(cannot_load(&path, e)),
        }
    }
}

impl Drop for Modules {
    fn drop(&mut self) {
        for name in self.loaded.iter().rev() {
            unload(name);
        }
    }
}

/// Unloads a module. A process that has just read one of its files may hold it for a moment longer.
/// A module that stays loaded is used by the next recording.
fn unload(name: &str) {
    for _ in 0..50 {
        match modules::unload(name) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => thread::sleep(Duration::from_millis(20)),
            _ => return,
        }
    }
}

/// Why the device cannot be opened.
pub fn cannot_open(error: io::Error) -> Error {
    match error.kind() {
        ErrorKind::ResourceBusy => Error::new("another recording uses the kernel engine").help(
            "wait for its end; recordings by the bpf engine (--engine bpf) can run beside it",
        ),
        ErrorKind::PermissionDenied => {
            Error::new(format!("{PATH} requires root")).help(host_kernel::AS_ROOT)
        }
        ErrorKind::NotFound => Error::new(format!(
            "the module {CORE} is loaded, but there is no {PATH}"
        ))
        .help(format!(
            "the file's number is in /proc/misc: mknod -m 600 {PATH} c 10 NUMBER; in a container, \
             pass it in from the host"
        )),
        _ => Error::new(format!("cannot open {PATH}: {error}")),
    }
}

/// Why the kernel rejects a module, and what can be done about it.
fn cannot_load(path: &Path, error: io::Error) -> Error {
    let refused =
        |why: &str| Error::new(format!("the kernel rejected the module {}: {why}", path.display()));
    let release = || machine::line("/proc/sys/kernel/osrelease");
    match error.raw_os_error() {
        Some(libc::ENOSYS) => {
            Error::new("this kernel cannot load modules").help("use --engine bpf")
        }
        Some(libc::EKEYREJECTED | libc::ENOKEY | libc::EBADMSG) => {
            refused("it is not signed by a key that is trusted").help(SIGNING)
        }
        Some(libc::EPERM) if machine::line("/proc/sys/kernel/modules_disabled") == "1" => {
            refused("loading modules has been switched off (kernel.modules_disabled)")
                .help("it can only be switched on again by a reboot; or use --engine bpf")
        }
        Some(libc::EPERM) if is_locked_down() => {
            refused("the kernel is locked down, and the module is not signed").help(SIGNING)
        }
        Some(libc::EPERM) => refused("this process may not load modules")
            .help("run klogger as root on the host: a container's root may not"),
        Some(libc::ENOEXEC) => {
            refused(&format!("it was made for another kernel than {}", release())).help(
                "make it again with 'klogger build' on this machine; the end of 'dmesg' says \
                   what differs",
            )
        }
        Some(libc::ENOENT) => {
            refused("it needs a symbol that this kernel, or the module klogger, does not have")
                .help("the end of 'dmesg' names it; make all modules again with 'klogger build'")
        }
        Some(libc::EINVAL) => refused("it does not match this kernel, or the module klogger")
            .help("the end of 'dmesg' says why; make all modules again with 'klogger build'"),
        Some(libc::ENOMEM) => refused("there is not enough memory"),
        _ => refused(&error.to_string()).help("the end of 'dmesg' may say more"),
    }
}

/// `none [integrity] confidentiality`
fn is_locked_down() -> bool {
    let state = machine::line("/sys/kernel/security/lockdown");
    !state.is_empty() && !state.contains("[none]")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(number: i32) -> Error {
        cannot_load(Path::new("/m/klogger.ko"), io::Error::from_raw_os_error(number))
    }

    #[test]
    fn each_refusal_has_a_message_and_a_remedy() {
        let numbers = [
            libc::ENOSYS,
            libc::EKEYREJECTED,
            libc::ENOEXEC,
            libc::ENOENT,
            libc::EINVAL,
            libc::EIO,
        ];
        let mut said: Vec<String> = numbers.iter().map(|n| refusal(*n).message).collect();
        assert!(numbers.iter().all(|n| refusal(*n).help.is_some()));
        said.sort();
        said.dedup();
        assert_eq!(said.len(), numbers.len());
        assert!(refusal(libc::EKEYREJECTED).help.unwrap().contains("mokutil"));
        assert!(refusal(libc::ENOSYS).help.unwrap().contains("--engine bpf"));
    }

    #[test]
    fn a_missing_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = Modules::new(Some(folder.path())).load("klogger_x").unwrap_err();
        assert!(error.message.contains("klogger_x.ko"), "{}", error.message);
        assert!(
            Modules::new(None).load("klogger_x").unwrap_err().help.unwrap().contains("--modules")
        );
    }
}
