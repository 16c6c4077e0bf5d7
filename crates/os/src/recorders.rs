// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The names under which recorders listen: abstract sockets, which disappear with their processes.
//! Any process can take any name. So a name says nothing: who listens is known by the socket's
//! credentials, and a recorder whose name is taken has another one, which nobody can take before.

use crate::files::random;
use crate::sockets::{connect_abstract, peer};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::{fs, io};

const PREFIX: &str = "klogger-recording-";
/// Digits of the number in another name.
const DIGITS: usize = 16;

/// A name of a recorder, as this process sees it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Recording {
    /// Process id: who has taken the name may not be this process.
    pub pid: u32,
    pub name: String,
}

/// The name that the recorder with this process id has if nobody else has taken it.
pub fn name(pid: u32) -> String {
    format!("{PREFIX}{pid}")
}

/// Listens under a name of this process.
pub fn listen() -> io::Result<UnixListener> {
    let pid = std::process::id();
    let bind = |name: String| UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?);
    bind(name(pid)).or_else(|e| match e.kind() {
        io::ErrorKind::AddrInUse => bind(format!("{}-{:0DIGITS$x}", name(pid), random())),
        _ => Err(e),
    })
}

/// All names of recorders in this network namespace.
pub fn recordings() -> io::Result<Vec<Recording>> {
    Ok(read(&fs::read("/proc/net/unix")?))
}

/// Names that are none of recorders may have any bytes.
fn read(text: &[u8]) -> Vec<Recording> {
    let recording = |line: &[u8]| {
        let at = line.iter().position(|b| *b == b'@')?;
        let name = std::str::from_utf8(line.get(at + 1..)?).ok()?;
        let mut words = name.strip_prefix(PREFIX)?.splitn(2, '-');
        let pid = words.next()?;
        let is_number = words
            .next()
            .is_none_or(|word| word.len() == DIGITS && word.bytes().all(|b| b.is_ascii_hexdigit()));
        let is_one = is_number && pid.bytes().all(|b| b.is_ascii_digit());
        Some(Recording { pid: pid.parse().ok().filter(|_| is_one)?, name: name.into() })
    };
    let mut found: Vec<Recording> = text.split(|b| *b == b'\n').filter_map(recording).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Whether this process listens as a recorder, and not another one under its name.
pub fn is_recording(pid: u32) -> bool {
    let listens = |name: &str| {
        let stream = connect_abstract(name);
        stream.and_then(|s| peer(s.as_fd())).is_ok_and(|peer| u32::try_from(peer.pid) == Ok(pid))
    };
    // If the others cannot be listed, it may still have the first one.
    let others = recordings().unwrap_or_default().into_iter().filter(|other| other.pid == pid);
    listens(&name(pid)) || others.into_iter().any(|other| listens(&other.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_names_hide_no_others() {
        let text = b"Num RefCount Protocol Flags Type St Inode Path\n\
            0: 2 0 10000 1 1 7 @klogger-recording-12\n0: 2 0 10000 1 1 7 @\xff\xfe\n\
            0: 2 0 10000 1 1 7 @klogger-recording-\xff\n0: 3 0 0 1 3 8\n\
            0: 2 0 10000 1 1 7 @klogger-recording-12-00000000000000ab\n\
            0: 3 0 0 1 3 8 @klogger-recording-12\n0: 3 0 0 1 3 8 @klogger-recording-+9\n\
            0: 3 0 0 1 3 8 @klogger-recording-9-x\n0: 3 0 0 1 3 8 @klogger-recording-9@\n\
            0: 2 0 10000 1 1 9 @klogger-recording-9";
        let found = read(text);
        let names: Vec<_> = found.iter().map(|r| (r.pid, r.name.as_str())).collect();
        let (other, first) = ("klogger-recording-12-00000000000000ab", "klogger-recording-12");
        assert_eq!(names, [(9, "klogger-recording-9"), (12, first), (12, other)]);
    }

    #[test]
    fn a_recorder_whose_name_is_taken_has_another_one() {
        let pid = std::process::id();
        // As other tests may listen, it is this one's name or not.
        let (first, second) = (listen().unwrap(), listen().unwrap());
        let found = recordings().unwrap();
        assert!(found.iter().filter(|r| r.pid == pid).count() >= 2, "{found:?}");
        assert!(is_recording(pid) && !is_recording(1));
        drop((first, second));
        assert!(!is_recording(pid));
    }
}
