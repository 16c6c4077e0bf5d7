// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Unix sockets: who is at the other end, and abstract names.

use crate::check;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// The user at the other end of a socket: the one who connected or, for a client, the one who
/// listens.
pub fn peer_uid(socket: BorrowedFd) -> io::Result<u32> {
    Ok(peer(socket)?.uid)
}

/// Whether paths mean the same files to the process at the other end of a socket as to us: it is in
/// our mount namespace. Not, if that cannot be known.
pub fn peer_has_our_files(socket: BorrowedFd) -> bool {
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    let theirs = peer(socket).ok().and_then(|peer| namespace(&peer.pid.to_string()));
    theirs.is_some() && theirs == namespace("self")
}

pub(crate) fn peer(socket: BorrowedFd) -> io::Result<libc::ucred> {
    // SAFETY: credentials and length are valid and of the sizes said.
    unsafe {
        let mut credentials: libc::ucred = std::mem::zeroed();
        let mut length = size_of_val(&credentials) as libc::socklen_t;
        check(libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &mut length,
        ))?;
        Ok(credentials)
    }
}

/// Connects to an abstract name without blocking, because the listener may never accept.
pub fn connect_abstract(name: &str) -> io::Result<UnixStream> {
    // SAFETY: zeros are a valid address; the descriptor is new and ours.
    unsafe {
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        // An abstract name begins after a NUL.
        let place = address.sun_path.get_mut(1..=name.len()).ok_or(io::ErrorKind::InvalidInput)?;
        place.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from as libc::c_char);
        let length = std::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
        let flags = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let socket = OwnedFd::from_raw_fd(check(libc::socket(libc::AF_UNIX, flags, 0))?);
        check(libc::connect(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            length as libc::socklen_t,
        ))?;
        let stream = UnixStream::from(socket);
        stream.set_nonblocking(false)?;
        Ok(stream)
    }
}
