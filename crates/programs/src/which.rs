// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Which file a name in a schema means: a path, a library, or the recorded program.

use crate::libraries::{self, is_library};
use crate::{Wrong, elf::Elf};
use klogger_codegen::Refusal;
use klogger_os::answers;
use klogger_os::files::{self, FileId};
use klogger_schema::attach_points::program::COMMAND;
use std::env;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// What is recorded, on which the meaning of a name depends.
#[derive(Clone, Debug, Default)]
pub enum Of {
    /// Nothing is recorded yet.
    #[default]
    Nothing,
    /// The whole machine, without a command.
    All,
    /// A command.
    Command(PathBuf),
    /// These processes. Paths are those of their own root directory.
    Processes(Vec<u32>),
}

/// Finds places in programs.
#[derive(Clone, Debug, Default)]
pub struct Programs {
    pub of: Of,
}

/// A file that a name means.
pub struct Opened {
    /// For messages.
    pub path: String,
    pub elf: Elf,
}

impl Programs {
    /// Whether it is not known yet what the name means.
    pub(crate) fn is_later(&self, name: &str) -> bool {
        name == COMMAND && matches!(self.of, Of::Nothing)
    }

    /// The files that a name means: of several processes, each file once.
    pub(crate) fn open(&self, name: &str) -> Result<Vec<Opened>, Refusal> {
        let mut found = match &self.of {
            Of::Processes(pids) => {
                let each = pids.iter().map(|pid| open_of(*pid, name));
                each.collect::<Result<Vec<_>, _>>()?
            }
            Of::Command(command) => vec![open_here(name, Some(command))?],
            Of::Nothing | Of::All => vec![open_here(name, None)?],
        };
        let id = |file: &File| file.metadata().ok().map(|m| FileId::of(&m));
        let mut seen = Vec::new();
        found.retain(|(_, file)| {
            let id = id(file);
            let new = !seen.contains(&id);
            seen.push(id);
            new
        });
        found.into_iter().map(|(path, file)| opened(path, file)).collect()
    }
}

fn opened(path: String, file: File) -> Result<Opened, Refusal> {
    let kind = file.metadata().map(|m| m.file_type());
    let wrong = match kind {
        Ok(kind) if kind.is_dir() => Some(Wrong::new("it is a directory")),
        Ok(kind) if !kind.is_file() => Some(Wrong::new("it is not a file")),
        Ok(_) => None,
        Err(e) => Some(cannot_open(&e)),
    };
    match wrong.map_or_else(|| Elf::open(file), Err) {
        Ok(elf) => Ok(Opened { path, elf }),
        Err(wrong) => Err(wrong.of(&path)),
    }
}

pub(crate) fn cannot_open(error: &io::Error) -> Wrong {
    match error.kind() {
        ErrorKind::NotFound => Wrong::new("there is no such file").help(
            "write the whole path of a program or library, or the name of one, such as 'libc'",
        ),
        ErrorKind::PermissionDenied => Wrong::new("permission denied"),
        _ => Wrong::new(error.to_string()),
    }
}

type Named = Result<(String, File), Refusal>;

fn open_path(root: &Path, path: &Path) -> Named {
    let shown = path.display().to_string();
    let root = files::look_at(root).and_then(|root| answers::open_below(&root, path));
    root.map(|file| (shown.clone(), file)).map_err(|e| cannot_open(&e).of(&shown))
}

/// `command`: of the recording.
fn open_here(name: &str, command: Option<&Path>) -> Named {
    let root = Path::new("/");
    if name == COMMAND {
        let Some(command) = command else {
            return Err(no_command());
        };
        let path = on_path(&command.to_string_lossy());
        let absolute = path
            .ok_or_else(|| cannot_open(&ErrorKind::NotFound.into()))
            .and_then(|path| std::path::absolute(path).map_err(|e| cannot_open(&e)));
        return open_path(root, &absolute.map_err(|wrong| wrong.of(&command.to_string_lossy()))?);
    }
    if name.starts_with('/') {
        return open_path(root, Path::new(name));
    }
    if is_library(name) {
        let own = command.and_then(|c| on_path(&c.to_string_lossy()));
        return libraries::find(name, root, own.as_deref()).and_then(|path| open_path(root, &path));
    }
    match on_path(name) {
        Some(path) => open_path(root, &path),
        None => Err(no_program(name)),
    }
}

fn no_command() -> Refusal {
    Refusal::of_this_kernel(
        format!("'{COMMAND}' is the program that is recorded, and there is none"),
        Some("record with '-- COMMAND' or '-p PID', or name the program".into()),
    )
}

fn no_program(name: &str) -> Refusal {
    Refusal::of_this_kernel(
        format!("there is no program '{name}'"),
        Some(format!(
            "write its path; the names of libraries begin with 'lib', and '{COMMAND}' is the \
             program that is recorded"
        )),
    )
}

/// A program as a shell finds it.
fn on_path(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(name.into());
    }
    let folders = env::var_os("PATH")?;
    let mut paths = env::split_paths(&folders).map(|folder| folder.join(name));
    let is_executable = |path: &PathBuf| {
        path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    paths.find(is_executable)
}

/// What a name means in a process.
fn open_of(pid: u32, name: &str) -> Named {
    let no_process =
        |e: io::Error| Wrong::new(format!("process {pid} cannot be inspected: {e}")).of(name);
    if name == COMMAND {
        let path = format!("/proc/{pid}/exe");
        let shown = std::fs::read_link(&path).map_err(no_process)?;
        let file = answers::open_link(Path::new(&path)).map_err(no_process)?;
        return Ok((shown.display().to_string(), file));
    }
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    if name.starts_with('/') {
        return open_path(&root, Path::new(name));
    }
    if !is_library(name) {
        let path = on_path(name).ok_or_else(|| no_program(name))?;
        return open_path(&root, &path);
    }
    match libraries::mapped(pid, name).map_err(no_process)? {
        Some(found) => Ok(found),
        // It may be opened later.
        None => libraries::find(name, &root, None).and_then(|path| open_path(&root, &path)),
    }
}
