// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! System calls that the standard library does not have, each behind a safe function.

pub mod bpffs;
pub mod clocks;
pub mod confine;
mod error;
pub mod files;
pub mod futex;
pub mod inotify;
pub mod machine;
pub mod memory;
pub mod modules;
pub mod processes;
pub mod recorders;
pub mod robust;
pub mod tracefs;
pub mod tsc;

pub use error::Error;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Memory shared with the kernel (a BPF map), or with a program (its file).
pub struct Mapping {
    address: NonNull<u8>,
    length: usize,
    /// Bytes of memory of our own in front of it.
    front: usize,
}

// SAFETY: it is plain memory; who reads and writes what is settled by the ring's protocol.
unsafe impl Send for Mapping {}
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `length` bytes of `fd` for reading and writing, shared.
    pub fn new(fd: BorrowedFd, length: usize) -> io::Result<Mapping> {
        Mapping::with_flags(fd, 0, length, 0)
    }

    /// New memory of our own: zeros.
    pub fn own(length: usize) -> io::Result<Mapping> {
        Mapping::made(-1, 0, length, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS)
    }

    /// The same, from an offset on.
    pub fn part(fd: BorrowedFd, offset: u64, length: usize) -> io::Result<Mapping> {
        Mapping::with_flags(fd, offset, length, 0)
    }

    /// Bytes of the front: whole pages, whatever their size.
    pub const FRONT: usize = 64 << 10;

    /// The same, for a file of which most will never be touched, behind memory that nobody shares.
    pub fn sparse(fd: BorrowedFd, length: usize) -> io::Result<Mapping> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let shared = libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED;
        let whole = Mapping::FRONT.checked_add(length).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: a new mapping at an address of the kernel's choice, and the file in the place of
        // a part of it.
        let start = unsafe { libc::mmap64(ptr::null_mut(), whole, protection, anonymous, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let address = NonNull::new(start.cast::<u8>().wrapping_add(Mapping::FRONT))
            .ok_or_else(|| io::Error::other("mmap returned address 0"))?;
        // From here on it is unmapped by drop().
        let mapping = Mapping { address, length, front: Mapping::FRONT };
        // SAFETY: as above.
        match unsafe {
            libc::mmap64(address.as_ptr().cast(), length, protection, shared, fd.as_raw_fd(), 0)
        } {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            _ => Ok(mapping),
        }
    }

    /// Memory in front of what is shared, if there is any.
    pub fn front(&self) -> Option<*mut u8> {
        (self.front != 0).then(|| self.address.as_ptr().wrapping_sub(self.front))
    }

    fn with_flags(
        fd: BorrowedFd,
        offset: u64,
        length: usize,
        flags: libc::c_int,
    ) -> io::Result<Mapping> {
        Mapping::made(fd.as_raw_fd(), offset, length, libc::MAP_SHARED | flags)
    }

    fn made(fd: RawFd, offset: u64, length: usize, flags: libc::c_int) -> io::Result<Mapping> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let address = unsafe {
            libc::mmap64(ptr::null_mut(), length, protection, flags, fd, offset as libc::off64_t)
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let address = NonNull::new(address.cast())
            .ok_or_else(|| io::Error::other("mmap returned address 0"))?;
        Ok(Mapping { address, length, front: 0 })
    }

    pub fn length(&self) -> usize {
        self.length
    }

    /// The word at `offset`, a multiple of 8.
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        let at = self.at(offset, 8);
        assert!(at.addr().is_multiple_of(8), "not aligned");
        // SAFETY: within the mapping, aligned, and shared only through atomics.
        unsafe { AtomicU64::from_ptr(at.cast()) }
    }

    /// The address of the byte at `offset`, of which at least `length` must follow.
    pub fn at(&self, offset: usize, length: usize) -> *mut u8 {
        assert!(
            offset.checked_add(length).is_some_and(|end| end <= self.length),
            "outside the mapping"
        );
        // SAFETY: checked just above.
        unsafe { self.address.as_ptr().add(offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by new(), and not used afterwards.
        unsafe {
            libc::munmap(
                self.address.as_ptr().wrapping_sub(self.front).cast(),
                self.front + self.length,
            )
        };
    }
}

/// CLOCK_MONOTONIC, the clock of all records, in ns.
pub fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: t is valid; both clocks exist on every Linux.
    unsafe { libc::clock_gettime(clock, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// (monotonic, wall clock, how far apart the two readings may be), in ns: the closest of several
/// pairs.
pub fn clock_pair() -> (u64, u64, u64) {
    let readings = (0..16).map(|_| {
        let before = monotonic_ns();
        let wall = clock_ns(libc::CLOCK_REALTIME);
        let after = monotonic_ns();
        (before + (after - before) / 2, wall, after - before)
    });
    readings.min_by_key(|r| r.2).unwrap_or_default()
}

/// CPU time of the calling thread, in ns.
pub fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// The calling thread is on one CPU, until this is dropped: then it may run where it could before.
pub struct Affinity(libc::cpu_set_t);

impl Affinity {
    pub fn to(cpu: u32) -> io::Result<Affinity> {
        let before = affinity()?;
        pin_to_cpu(cpu)?;
        Ok(Affinity(before))
    }
}

/// The CPU with the lowest number of those where the calling thread may run.
pub fn lowest_cpu() -> io::Result<u32> {
    let set = affinity()?;
    // SAFETY: within the set.
    let lowest = (0..8 * size_of_val(&set)).find(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) });
    lowest.map(|cpu| cpu as u32).ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn affinity() -> io::Result<libc::cpu_set_t> {
    // SAFETY: zeros are a valid set, and the kernel writes no more than its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        check(libc::sched_getaffinity(0, size_of_val(&set), &mut set))?;
        Ok(set)
    }
}

impl Drop for Affinity {
    fn drop(&mut self) {
        // SAFETY: the set is valid. If it is refused, the thread stays where it is.
        unsafe { libc::sched_setaffinity(0, size_of_val(&self.0), &self.0) };
    }
}

/// Where the calling thread runs.
pub fn this_cpu() -> Option<u32> {
    // SAFETY: no arguments.
    u32::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// Binds the calling thread to one CPU.
pub fn pin_to_cpu(cpu: u32) -> io::Result<()> {
    // SAFETY: set is valid, and CPU_SET stays within it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if cpu as usize >= 8 * size_of::<libc::cpu_set_t>() {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        libc::CPU_SET(cpu as usize, &mut set);
        check(libc::sched_setaffinity(0, size_of_val(&set), &set)).map(drop)
    }
}

/// Gives the calling thread the lowest SCHED_FIFO priority: above all ordinary threads, below the
/// kernel's own.
pub fn become_fifo() -> io::Result<()> {
    let param = libc::sched_param { sched_priority: 1 };
    // SAFETY: param is valid.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &param) }).map(drop)
}

/// Gives the calling thread a share of a busy CPU that others cannot take from it, and lets them
/// have theirs.
pub fn become_important() -> io::Result<()> {
    const NICE: libc::c_int = -15;
    // SAFETY: no pointers; 0 is the calling thread.
    check(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) }).map(drop)
}

/// Returns after everything that was running with preemption off when it was called has finished:
/// this system call waits for all CPUs to have passed through the scheduler. BPF programs are
/// another matter: see `bpf::grace`.
pub fn wait_for_all_cpus() {
    const MEMBARRIER_CMD_GLOBAL: libc::c_int = 1;
    // SAFETY: no pointers.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) };
    if result != 0 {
        // Not offered on nohz_full kernels. A program takes microseconds.
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// While it lives, signals that would end the calling thread's process wait, so that it can put
/// away what it has laid out. Processes that it starts hear them at once.
pub struct Uninterrupted(libc::sigset_t);

impl Uninterrupted {
    pub fn begin() -> Uninterrupted {
        // SAFETY: both sets are valid.
        unsafe {
            let (mut set, mut before): (libc::sigset_t, libc::sigset_t) =
                (std::mem::zeroed(), std::mem::zeroed());
            libc::sigemptyset(&mut set);
            [libc::SIGINT, libc::SIGTERM, libc::SIGHUP].iter().for_each(|s| {
                libc::sigaddset(&mut set, *s);
            });
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before);
            Uninterrupted(before)
        }
    }
}

impl Drop for Uninterrupted {
    fn drop(&mut self) {
        // SAFETY: the set is one that the kernel has filled in.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, ptr::null_mut()) };
    }
}

/// A signal that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal {
    pub number: libc::c_int,
    /// A key on the terminal, which reaches all processes of the foreground group alike.
    pub from_terminal: bool,
}

/// Where the handler leaves what has arrived: the end of a pipe, of which there is one in a
/// process.
static ARRIVED: AtomicI32 = AtomicI32::new(-1);

/// Signals that end a recording, or make it dump, as a file descriptor. A handler, unlike a
/// signalfd, does not depend on which threads there are and what they block.
pub struct Signals {
    arrived: OwnedFd,
}

impl Signals {
    /// Of `signals`, a hang-up that is ignored already (by nohup) stays ignored.
    pub fn new(signals: &[libc::c_int]) -> io::Result<Signals> {
        let mut ends = [-1; 2];
        // SAFETY: ends has room for two; the descriptors are new and ours. The write end stays open
        // for the handler.
        let arrived = unsafe {
            check(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK))?;
            OwnedFd::from_raw_fd(ends[0])
        };
        ARRIVED.store(ends[1], Ordering::Release);
        let handler =
            note_signal as extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
        for s in signals {
            // SAFETY: both structures are valid; the handler does only what a handler may.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                check(libc::sigaction(*s, ptr::null(), &mut action))?;
                if *s == libc::SIGHUP && action.sa_sigaction == libc::SIG_IGN {
                    continue;
                }
                action = std::mem::zeroed();
                action.sa_sigaction = handler as libc::sighandler_t;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
                check(libc::sigaction(*s, &action, ptr::null_mut()))?;
            }
        }
        Ok(Signals { arrived })
    }

    /// The next signal that has arrived, if any.
    pub fn next(&self) -> Option<Signal> {
        let mut bytes = [0u8; 2];
        // SAFETY: bytes is as long as is said. The handler writes two at a time, which a pipe does
        // not tear.
        let n =
            unsafe { libc::read(self.arrived.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len()) };
        (n == 2).then_some(Signal { number: bytes[0].into(), from_terminal: bytes[1] != 0 })
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.arrived.as_fd()
    }
}

extern "C" fn note_signal(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid info; write is async-signal-safe, and errno is put back. A
    // full pipe holds thousands of signals that nobody has looked at yet.
    unsafe {
        let errno = *libc::__errno_location();
        let bytes = [signal as u8, u8::from((*info).si_code == libc::SI_KERNEL)];
        libc::write(ARRIVED.load(Ordering::Acquire), bytes.as_ptr().cast(), bytes.len());
        *libc::__errno_location() = errno;
    }
}

/// A log that may not grow any more (RLIMIT_FSIZE) is as one on a full disk: an error that is
/// reported, not a signal that ends us. The command that is recorded has the signal as usual
/// ([`become_ordinary`]).
pub fn survive_file_limits() {
    // SAFETY: no pointers but the action that is ignored.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// In a child between fork and exec: signals do what they do to an ordinary program, and `fd` is
/// closed.
pub fn become_ordinary(signals: &[libc::c_int], fd: RawFd) {
    // SAFETY: the calls are async-signal-safe; the descriptor is this child's copy, which nothing
    // uses.
    unsafe {
        for s in signals {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(*s, ptr::null(), &mut action);
            if action.sa_sigaction != libc::SIG_IGN {
                libc::signal(*s, libc::SIG_DFL);
            }
        }
        libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
        libc::close(fd);
    }
}

/// True if the process is in our own process group, to which a terminal sends its signals.
pub fn in_our_group(pid: u32) -> bool {
    // SAFETY: no pointers.
    unsafe { libc::getpgid(pid as libc::pid_t) == libc::getpgrp() }
}

/// Waits until one of `fds` can be read, or the time has passed. The answer has one element for
/// each of them.
pub fn poll_readable(fds: &[BorrowedFd], timeout: Duration) -> io::Result<Vec<bool>> {
    let mut list: Vec<libc::pollfd> = fds
        .iter()
        .map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 })
        .collect();
    let millis = timeout.as_millis().min(i32::MAX as u128) as libc::c_int;
    // SAFETY: list is valid and as long as is said.
    match check(unsafe { libc::poll(list.as_mut_ptr(), list.len() as libc::nfds_t, millis) }) {
        Err(e) if e.kind() != io::ErrorKind::Interrupted => Err(e),
        _ => Ok(list.iter().map(|p| p.revents != 0).collect()),
    }
}

/// A descriptor that becomes readable when the process ends. Fails for a thread that is not its
/// process's first.
pub fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the descriptor is new and ours.
    unsafe {
        let fd = check(libc::syscall(libc::SYS_pidfd_open, pid, 0) as libc::c_int)?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

pub fn kill(pid: u32, signal: libc::c_int) {
    // SAFETY: no pointers. That the process is gone already is as good.
    unsafe { libc::kill(pid as libc::pid_t, signal) };
}

/// (release, version, machine) of the running kernel, and the host's name.
pub fn uname() -> (String, String, String, String) {
    let text = |bytes: &[libc::c_char]| {
        let bytes: Vec<u8> = bytes.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    // SAFETY: names is valid, and zeros are a valid value of it.
    let names = unsafe {
        let mut names: libc::utsname = std::mem::zeroed();
        libc::uname(&mut names);
        names
    };
    (text(&names.release), text(&names.version), text(&names.machine), text(&names.nodename))
}

/// The user at the other end of a socket: who connected or, seen from there, who began to listen.
pub fn peer_uid(socket: BorrowedFd) -> io::Result<u32> {
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
        Ok(credentials.uid)
    }
}

/// Connects to an abstract name, at once or not at all: whoever listens there may never accept.
pub fn connect_abstract(name: &str) -> io::Result<UnixStream> {
    // SAFETY: zeros are a valid address; the descriptor is new and ours.
    unsafe {
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        // An abstract name begins behind a NUL.
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
