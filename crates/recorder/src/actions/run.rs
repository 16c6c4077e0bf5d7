// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Commands that triggers run. Each has a thread, which waits for it, keeps the beginning of what
//! it prints, and kills its process group when its shell has ended or its time is over. So neither
//! the rings nor the log wait for a command that hangs or floods, and none is left behind.

use super::Hit;
use klogger_log::event::Value;
use klogger_os as os;
use std::collections::BTreeSet;
use std::io::{self, PipeReader, Read, pipe};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How long a command may take.
pub const TIME: Duration = Duration::from_secs(10);
/// Commands that run at the same time, of all triggers.
const RUNNING_MAX: usize = 4;
/// Bytes that are kept of what a command prints, and of the value of a variable.
const OUTPUT_MAX: usize = 4096;
const VALUE_MAX: usize = 1024;
/// What a pipe holds.
const PIPE: usize = 64 << 10;
/// How often a thread looks whether the time is over, and reads what is not kept.
const LOOK: Duration = Duration::from_millis(100);

/// A command that has ended.
pub struct Ended {
    pub hit: Hit,
    pub command: String,
    /// Empty if it was successful.
    pub result: String,
    /// The beginning of what it printed.
    pub output: String,
}

/// The commands that run.
pub struct Commands {
    running: BTreeSet<u16>,
    ended: Receiver<Ended>,
    to: Sender<Ended>,
    /// When it is closed, the threads end their commands.
    stop: Option<UnixStream>,
    stopped: UnixStream,
}

impl Commands {
    pub fn new() -> io::Result<Commands> {
        let (to, ended) = channel();
        let (stop, stopped) = UnixStream::pair()?;
        Ok(Commands { running: BTreeSet::new(), ended, to, stop: Some(stop), stopped })
    }

    /// Starts a command. Returns why it was not started. `variables`: for its environment.
    pub fn start(
        &mut self,
        hit: Hit,
        command: &str,
        variables: Vec<(String, String)>,
    ) -> Result<(), String> {
        if self.running.contains(&hit.trigger) {
            return Err("not run: the one before still runs".into());
        }
        if self.running.len() >= RUNNING_MAX {
            return Err(format!("not run: {RUNNING_MAX} commands run already"));
        }
        let (trigger, command, to) = (hit.trigger, command.to_string(), self.to.clone());
        let stopped = self.stopped.try_clone().map_err(|e| format!("not run: {e}"))?;
        let run = move || {
            let (result, output) = run(&command, variables, &stopped);
            // Fails only if nobody waits any more.
            let _ = to.send(Ended { hit, command, result, output });
        };
        let thread = thread::Builder::new().name("klogger/run".into()).spawn(run);
        thread.map_err(|e| format!("not run: {e}"))?;
        self.running.insert(trigger);
        Ok(())
    }

    /// Those that have ended since.
    pub fn take(&mut self) -> Vec<Ended> {
        let ended: Vec<Ended> = self.ended.try_iter().collect();
        for one in &ended {
            self.running.remove(&one.hit.trigger);
        }
        ended
    }

    pub fn are_running(&self) -> bool {
        !self.running.is_empty()
    }

    /// Ends those that still run.
    pub fn end(&mut self) {
        self.stop = None;
    }
}

/// What a command is told of a hit. `start_ns`: when the recording began.
pub fn variables(hit: &Hit, start_ns: u64) -> Vec<(String, String)> {
    let mut all = vec![
        ("KLOGGER_TRIGGER".to_string(), hit.trigger.to_string()),
        ("KLOGGER_TIME".into(), hit.time_ns.saturating_sub(start_ns).to_string()),
        ("KLOGGER_CPU".into(), hit.cpu.map_or(String::new(), |cpu| cpu.to_string())),
        ("KLOGGER_RECORDER".into(), std::process::id().to_string()),
    ];
    if let Some(event) = &hit.event {
        all.push(("KLOGGER_EVENT".into(), event.layout.name.clone()));
        let fields = event.fields().into_iter();
        all.extend(fields.map(|(name, value)| (format!("KLOGGER_FIELD_{name}"), text(value))));
    }
    all
}

/// A value for the environment. Control characters of a text become question marks.
fn text(value: Value) -> String {
    match value {
        Value::Int(n) => n.to_string(),
        Value::Uint(n) => n.to_string(),
        Value::Bool(b) => u8::from(b).to_string(),
        Value::Text(bytes) => {
            let bytes = &bytes[..bytes.len().min(VALUE_MAX)];
            let clean = |c: char| if c.is_control() { '?' } else { c };
            String::from_utf8_lossy(bytes).chars().map(clean).collect()
        }
        Value::Array(elements) => {
            let mut all = String::new();
            for element in elements.iter().map(text) {
                if all.len() + element.len() >= VALUE_MAX {
                    break;
                }
                if !all.is_empty() {
                    all.push(' ');
                }
                all += &element;
            }
            all
        }
    }
}

/// Runs a command to its end; returns its result and its output.
fn run(command: &str, variables: Vec<(String, String)>, stopped: &UnixStream) -> (String, String) {
    match start(command, variables) {
        Ok((child, output)) => wait(child, output, stopped),
        Err(e) => (format!("cannot run /bin/sh: {e}"), String::new()),
    }
}

fn start(command: &str, variables: Vec<(String, String)>) -> io::Result<(Child, PipeReader)> {
    let (output, input) = pipe()?;
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(command).envs(variables).process_group(0);
    shell.stdin(Stdio::null()).stdout(input.try_clone()?).stderr(input);
    // SAFETY: signal and close are async-signal-safe; no descriptor has the number -1.
    unsafe {
        shell.pre_exec(|| {
            os::become_ordinary(&[], -1);
            Ok(())
        });
    }
    Ok((shell.spawn()?, output))
}

/// Waits for a command that was started. What it leaves in its process group ends with it.
fn wait(mut child: Child, mut output: PipeReader, stopped: &UnixStream) -> (String, String) {
    let end = Instant::now() + TIME;
    let mut kept = Vec::new();
    let mut open = true;
    // Without it, the end is seen a little later.
    let exit = os::pidfd_open(child.id()).ok();
    let why = loop {
        let ended = exit.as_ref().map_or(stopped.as_fd(), AsFd::as_fd);
        // The rest of a flood is read slowly.
        let flood = kept.len() >= OUTPUT_MAX;
        let fds = [stopped.as_fd(), ended, output.as_fd()];
        let ready = os::poll_readable(&fds[..if open && !flood { 3 } else { 2 }], LOOK);
        let ready = ready.unwrap_or_default();
        let is_ready = |n: usize| ready.get(n) == Some(&true);
        if open && (flood || is_ready(2)) {
            open = keep(&mut output, &mut kept);
        }
        if is_ready(0) {
            break Some("killed, because the recording ended".into());
        }
        if is_ready(1) {
            break None;
        }
        if Instant::now() >= end {
            break Some(format!("killed after {} s", TIME.as_secs()));
        }
    };
    // A child that is not reaped yet keeps its number, which is that of its group.
    os::kill_group(child.id(), libc::SIGKILL);
    let status = child.wait();
    // A program that has left the process group may hold the output open.
    while open && kept.len() < OUTPUT_MAX && has_more(&output) {
        open = keep(&mut output, &mut kept);
    }
    (why.unwrap_or_else(|| status.map_or_else(|e| e.to_string(), result)), shown(&kept))
}

fn has_more(output: &PipeReader) -> bool {
    os::poll_readable(&[output.as_fd()], Duration::ZERO).is_ok_and(|ready| ready[0])
}

/// Reads a part of the output, if there is any; returns whether there may be more.
fn keep(output: &mut PipeReader, kept: &mut Vec<u8>) -> bool {
    if !has_more(output) {
        return true;
    }
    let mut part = [0; PIPE];
    match output.read(&mut part) {
        Ok(0) | Err(_) => false,
        Ok(n) => {
            let room = OUTPUT_MAX.saturating_sub(kept.len());
            kept.extend_from_slice(&part[..n.min(room)]);
            true
        }
    }
}

fn shown(output: &[u8]) -> String {
    let cut = if output.len() >= OUTPUT_MAX { " ..." } else { "" };
    format!("{}{cut}", String::from_utf8_lossy(output).trim_end())
}

fn result(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(0), _) => String::new(),
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("ended by signal {signal}"),
        (None, None) => "ended".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hit(trigger: u16) -> Hit {
        Hit { trigger, number: 1, time_ns: 5, cpu: Some(1), event: None }
    }

    /// Waits until so many have ended.
    fn ended(commands: &mut Commands, number: usize) -> Vec<Ended> {
        let end = Instant::now() + Duration::from_secs(180);
        let mut found = Vec::new();
        while found.len() < number {
            assert!(Instant::now() < end, "it has not ended");
            thread::sleep(Duration::from_millis(5));
            found.extend(commands.take());
        }
        found
    }

    #[test]
    fn a_command_has_its_variables_and_its_result() {
        let mut commands = Commands::new().unwrap();
        let variables = variables(&hit(2), 2);
        commands.start(hit(2), "echo $KLOGGER_TRIGGER $KLOGGER_TIME; exit 3", variables).unwrap();
        let one = ended(&mut commands, 1).remove(0);
        assert_eq!((one.result.as_str(), one.output.as_str()), ("exit code 3", "2 3"));
        assert!(!commands.are_running());
    }

    #[test]
    fn a_command_that_floods_is_cut() {
        let mut commands = Commands::new().unwrap();
        let flood = "i=0; while [ $i -lt 20000 ]; do echo 0123456789; i=$((i+1)); done";
        commands.start(hit(1), flood, Vec::new()).unwrap();
        let one = ended(&mut commands, 1).remove(0);
        assert_eq!(one.result, "");
        assert!(one.output.len() <= OUTPUT_MAX + 4 && one.output.ends_with(" ..."));
    }

    #[test]
    fn what_it_leaves_behind_is_ended() {
        let mut commands = Commands::new().unwrap();
        commands.start(hit(1), "sleep 1000 & echo $!", Vec::new()).unwrap();
        let one = ended(&mut commands, 1).remove(0);
        assert_eq!(one.result, "");
        let left = std::path::PathBuf::from(format!("/proc/{}/stat", one.output));
        let end = Instant::now() + Duration::from_secs(180);
        // Whoever adopts it may leave it a zombie for a while.
        while std::fs::read_to_string(&left).is_ok_and(|stat| !stat.contains(") Z ")) {
            assert!(Instant::now() < end, "it still runs");
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn one_at_a_time_and_all_of_it_is_ended() {
        let mut commands = Commands::new().unwrap();
        for trigger in 1..=RUNNING_MAX as u16 {
            commands.start(hit(trigger), "sleep 1000 & sleep 1000", Vec::new()).unwrap();
        }
        let again = commands.start(hit(1), "true", Vec::new()).unwrap_err();
        assert_eq!(again, "not run: the one before still runs");
        let more = commands.start(hit(99), "true", Vec::new()).unwrap_err();
        assert_eq!(more, "not run: 4 commands run already");
        commands.end();
        for one in ended(&mut commands, RUNNING_MAX) {
            assert_eq!(one.result, "killed, because the recording ended");
        }
    }

    #[test]
    fn what_programs_write_cannot_harm() {
        assert_eq!(text(Value::Text(b"a\x1b[2J\n$(rm)\xff")), "a?[2J?$(rm)\u{fffd}");
        assert_eq!(text(Value::Text(&[b'x'; 5000])).len(), VALUE_MAX);
        assert_eq!(text(Value::Int(-3)), "-3");
    }
}
