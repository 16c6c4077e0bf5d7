// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Runs a program for its output, with limits of size and of time.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// What a program has written.
pub struct Said {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

/// Runs a program without input until it ends. One that writes more than `most` bytes, or takes
/// longer than `within` (error `TimedOut`), is killed.
pub fn output(mut command: Command, most: usize, within: Duration) -> io::Result<Said> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.process_group(0).spawn()?;
    let heard = listen(&mut child, most, Instant::now() + within);
    if let Err(why) = heard {
        // With what it has started. Without the right to, it is left behind.
        // SAFETY: takes numbers. The child is not reaped yet, so the group is its own.
        if unsafe { libc::kill(-child.id().cast_signed(), libc::SIGKILL) } == 0 {
            child.wait()?;
        }
        return Err(why);
    }
    let status = child.wait()?;
    heard.map(|[stdout, stderr]| Said { status, stdout, stderr })
}

/// Has a child killed when this thread ends, and keeps the signals of a terminal from it.
pub fn end_with_us(command: &mut Command) {
    let enter = || {
        // SAFETY: takes numbers.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        Ok(())
    };
    // SAFETY: between fork and exec only a system call is made.
    unsafe { command.process_group(0).pre_exec(enter) };
}

/// Both outputs, until the process has ended.
fn listen(child: &mut Child, most: usize, until: Instant) -> io::Result<[Vec<u8>; 2]> {
    let ended = super::pidfd_open(child.id())?;
    let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
    let mut texts = [Vec::new(), Vec::new()];
    while stdout.is_some() || stderr.is_some() {
        let open = [stdout.as_ref().map(AsFd::as_fd), stderr.as_ref().map(AsFd::as_fd)];
        let fds: Vec<_> = open.into_iter().flatten().collect();
        let mut ready = wait(&fds, until)?.into_iter();
        if stdout.is_some() && ready.next() == Some(true) {
            more(&mut stdout, &mut texts[0], most)?;
        }
        if stderr.is_some() && ready.next() == Some(true) {
            more(&mut stderr, &mut texts[1], most)?;
        }
    }
    while !wait(&[ended.as_fd()], until)?.contains(&true) {}
    Ok(texts)
}

fn wait(fds: &[std::os::fd::BorrowedFd], until: Instant) -> io::Result<Vec<bool>> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    super::poll_readable(fds, left.max(Duration::from_millis(1)))
}

/// Reads what is there; at the end, closes it.
fn more<R: Read>(from: &mut Option<R>, text: &mut Vec<u8>, most: usize) -> io::Result<()> {
    let mut bytes = [0; 1 << 16];
    let read = from.as_mut().map_or(Ok(0), |from| from.read(&mut bytes))?;
    if read == 0 {
        *from = None;
    }
    text.extend_from_slice(&bytes[..read]);
    if text.len() > most {
        return Err(io::Error::other(format!("it writes more than {most} bytes")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    fn sh(text: &str, most: usize, within: Duration) -> io::Result<Said> {
        let mut command = Command::new("sh");
        command.args(["-c", text]);
        output(command, most, within)
    }

    #[test]
    fn both_outputs_and_the_status() {
        let said = sh("echo out; echo err >&2; exit 3", 100, LONG).unwrap();
        assert_eq!((said.stdout, said.stderr), (b"out\n".to_vec(), b"err\n".to_vec()));
        assert_eq!(said.status.code(), Some(3));
        // More than a pipe holds, in both.
        let text = "head -c 300000 /dev/zero >&2; head -c 400000 /dev/zero";
        let said = sh(text, 1 << 20, LONG).unwrap();
        assert_eq!((said.stdout.len(), said.stderr.len()), (400_000, 300_000));
    }

    #[test]
    fn one_that_has_closed_its_outputs_is_waited_for() {
        let said = sh("exec >&- 2>&-; sleep 0.1; exit 4", 100, LONG).unwrap();
        assert_eq!(said.status.code(), Some(4));
    }

    #[test]
    fn limits_end_it() {
        let why = sh("yes", 1 << 20, LONG).err().expect("it writes without end").to_string();
        assert_eq!(why, "it writes more than 1048576 bytes");
        for stopped in ["kill -STOP $$", "exec >&- 2>&-; kill -STOP $$"] {
            let why = sh(stopped, 100, Duration::from_millis(50)).err().expect("it never ends");
            assert_eq!(why.kind(), io::ErrorKind::TimedOut);
        }
    }
}
