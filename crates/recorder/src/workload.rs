// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The command that is recorded: forked early, but held before exec until everything is ready.

use klogger_os as os;
use klogger_os::Error;
use klogger_os::threads;
use std::ffi::{OsStr, OsString};
use std::io::{self, PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::thread::JoinHandle;

/// Signals that the recorder handles.
pub const SIGNALS: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1];

/// What the command has, where it differs from what the recorder has.
#[derive(Clone, Debug, Default)]
pub struct Launch {
    /// The process group.
    pub group: Option<u32>,
    /// A descriptor of the recorder that is the command's standard error.
    pub stderr: Option<RawFd>,
    /// Numbers of signals that it ignores, beside those that the recorder was started with.
    pub ignored: Vec<i32>,
}

impl Launch {
    /// For the child, between fork and exec.
    fn take_effect(&self) -> io::Result<()> {
        if let Some(group) = self.group {
            os::join_group(group)?;
        }
        self.stderr.map_or(Ok(()), os::make_stderr)
    }
}

/// A child process that waits between fork and exec.
pub struct Held {
    pid: u32,
    go: PipeWriter,
    /// `Command::spawn` returns only after exec, so it has a thread of its own.
    spawned: JoinHandle<io::Result<Child>>,
    program: PathBuf,
    name: String,
}

/// The command, running.
pub struct Running {
    child: Child,
    pub ended: OwnedFd,
}

impl Held {
    /// `words`: the command and its arguments; not empty. `variables`: for its environment.
    pub fn new(
        words: &[OsString],
        variables: Vec<(&str, String)>,
        launch: Launch,
    ) -> Result<Held, Error> {
        let name = words[0].to_string_lossy().into_owned();
        let cannot = |e| Error::new(format!("cannot start '{name}': {e}"));
        let (mut pid_reader, pid_writer) = pipe().map_err(cannot)?;
        let (go_reader, go) = pipe().map_err(cannot)?;
        let program = program(&words[0]);
        let mut command = Command::new(&program);
        command.arg0(&words[0]).args(&words[1..]).envs(variables);
        let spawned = spawn_held(command, launch, pid_writer, go_reader, go.as_raw_fd())?;
        let mut bytes = [0; 4];
        if let Err(e) = pid_reader.read_exact(&mut bytes) {
            // There was no child: its thread knows why.
            let why = spawned.join().ok().and_then(Result::err);
            return Err(cannot(why.unwrap_or(e)));
        }
        Ok(Held { pid: u32::from_ne_bytes(bytes), go, spawned, program, name })
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Lets the child continue to exec.
    pub fn start(mut self) -> Result<Running, Error> {
        let cannot = |e: io::Error| match e.kind() {
            io::ErrorKind::NotFound if self.program.exists() => {
                let what = match interpreter(&self.program) {
                    Some(named) => format!("its interpreter {named:?} is not there"),
                    None => "its interpreter is not there".into(),
                };
                Error::new(format!("cannot run '{}': {what}", self.name)).help(
                    "of a script it is in the first line, behind '#!', which must not end in a \
                     carriage return (\\r); of a program, 'file' names it",
                )
            }
            io::ErrorKind::NotFound => {
                Error::new(format!("cannot run '{}': there is no such command", self.name))
                    .help("give its path, or check its spelling and the PATH")
            }
            io::ErrorKind::PermissionDenied => {
                Error::new(format!("cannot run '{}': permission denied", self.name))
                    .help("check that it is a program, and executable: chmod +x")
            }
            _ => Error::new(format!("cannot run '{}': {e}", self.name)),
        };
        // Opened before the child continues: a command that cannot be run ends at once.
        let ended = os::pidfd_open(self.pid).map_err(cannot)?;
        self.go.write_all(&[1]).map_err(cannot)?;
        let spawned =
            self.spawned.join().unwrap_or_else(|_| Err(io::Error::other("its thread panicked")));
        Ok(Running { child: spawned.map_err(cannot)?, ended })
    }
}

/// The file of a command without a slash, as `execvp()` finds it. It is looked for before the fork,
/// because the child is recorded: its attempts in each folder of the PATH would be events.
fn program(name: &OsStr) -> PathBuf {
    let is_program = |path: &PathBuf| {
        path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 > 0)
    };
    let search = || {
        let folders = std::env::var_os("PATH")?;
        std::env::split_paths(&folders).map(|folder| folder.join(name)).find(is_program)
    };
    match name.as_encoded_bytes().contains(&b'/') {
        true => name.into(),
        // The error is that of the child's exec.
        false => search().unwrap_or_else(|| name.into()),
    }
}

/// What a script names as its interpreter.
fn interpreter(program: &Path) -> Option<String> {
    const LINE_MAX: usize = 255;
    let mut begin = Vec::new();
    let file = os::files::open_regular(program).ok()?;
    file.take(LINE_MAX as u64).read_to_end(&mut begin).ok()?;
    let line = begin.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    // A carriage return is part of the name.
    line.split([' ', '\t']).find(|word| !word.is_empty()).map(String::from)
}

/// `our_go`: the recorder's end of the pipe, of which the child has a copy. The child closes it,
/// because otherwise it would not see the recorder end.
fn spawn_held(
    mut command: Command,
    launch: Launch,
    mut pid_writer: PipeWriter,
    mut go: PipeReader,
    our_go: RawFd,
) -> Result<JoinHandle<io::Result<Child>>, Error> {
    let wait = move || {
        os::become_ordinary(&launch.ignored, our_go);
        launch.take_effect()?;
        pid_writer.write_all(&std::process::id().to_ne_bytes())?;
        // If the recorder has ended, this fails and the command is not run.
        go.read_exact(&mut [0])?;
        Ok(())
    };
    // SAFETY: between fork and exec only read, write, close, dup2, setpgid, getpid and signal are
    // used, which are async-signal-safe.
    unsafe { command.pre_exec(wait) };
    threads::start("klogger/command", move || command.spawn())
}

impl Running {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The status, if it has ended.
    pub fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    pub fn signal(&self, signal: i32) {
        os::kill(self.child.id(), signal);
    }
}

/// The exit code that a shell would report: the command's own, or 128 + the signal that ended it.
pub fn exit_code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => (128 + signal) as u8,
        (None, None) => 2,
    }
}
