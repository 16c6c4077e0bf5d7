// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The processes and threads of `-p`: found before anything is attached, and watched until they
//! end.

use klogger_engines::engine::EngineInfo;
use klogger_engines::request::{Request, Target};
use klogger_os as os;
use klogger_os::{Error, processes};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Those that were named; none unless there is a `-p`.
#[derive(Default)]
pub struct Followed(Vec<Member>);

struct Member {
    /// A process; or one of its threads, whose id differs.
    id: u32,
    process: u32,
    end: End,
}

/// How the end of a process or a thread is noticed.
enum End {
    /// The descriptor becomes readable.
    Handle(OwnedFd),
    /// The kernel has no descriptors for single threads: whether there still is a thread that
    /// started at this time.
    Started(Option<u64>),
}

impl Member {
    fn of(id: u32) -> Result<Member, Error> {
        let no_such = || {
            Error::new(format!("there is no process or thread {id}"))
                .help("see 'ps -eL' for those there are")
        };
        let process = processes::process_of(id).ok_or_else(no_such)?;
        let handle = if process == id { os::pidfd_open(id) } else { os::pidfd_open_thread(id) };
        let end = match handle {
            Ok(handle) => End::Handle(handle),
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => return Err(no_such()),
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) && process != id => {
                End::Started(processes::started(id))
            }
            Err(e) => return Err(Error::new(format!("cannot watch process {id}: {e}"))),
        };
        Ok(Member { id, process, end })
    }

    fn is_thread(&self) -> bool {
        self.id != self.process
    }
}

impl Followed {
    /// Finds all of them. `engines`: those that record them.
    pub fn of(request: &Request, engines: Vec<&EngineInfo>) -> Result<Followed, Error> {
        let Target::Processes(ids) = &request.target else { return Ok(Followed::default()) };
        let members = ids.iter().map(|id| Member::of(*id)).collect::<Result<Vec<_>, _>>()?;
        match members.iter().find(|m| m.is_thread()) {
            Some(thread) if engines.iter().any(|e| !e.probes) => Err(Error::new(format!(
                "{} is a thread of process {}, and programs are recorded as whole processes",
                thread.id, thread.process
            ))
            .help(format!("give the process: -p {}", thread.process))),
            Some(_) | None => Ok(Followed(members)),
        }
    }

    /// Ids of whole processes.
    pub fn processes(&self) -> impl Iterator<Item = u32> {
        self.0.iter().filter(|m| !m.is_thread()).map(|m| m.id)
    }

    /// (process, thread) of single threads.
    pub fn threads(&self) -> impl Iterator<Item = (u32, u32)> {
        self.0.iter().filter(|m| m.is_thread()).map(|m| (m.process, m.id))
    }

    /// Ids of all of them.
    pub fn ids(&self) -> impl Iterator<Item = u32> {
        self.0.iter().map(|m| m.id)
    }

    pub fn ends(&self) -> Ends<'_> {
        let mut ends = Ends::default();
        for member in &self.0 {
            match &member.end {
                End::Handle(handle) => ends.handles.push(handle.as_fd()),
                End::Started(started) => ends.threads.push((member.id, *started)),
            }
        }
        ends
    }

    /// Whether all have ended.
    pub fn has_ended(&self) -> bool {
        let mut ends = self.ends();
        let ready = os::poll_readable(&ends.handles, Duration::ZERO).unwrap_or_default();
        ends.retain(&ready);
        ends.is_empty()
    }
}

/// What a recording waits for: those that have not ended.
#[derive(Default)]
pub struct Ends<'a> {
    handles: Vec<BorrowedFd<'a>>,
    /// Threads without a handle, and when they started.
    threads: Vec<(u32, Option<u64>)>,
}

impl<'a> Ends<'a> {
    pub fn of_command(handle: BorrowedFd<'a>) -> Ends<'a> {
        Ends { handles: vec![handle], threads: Vec::new() }
    }

    /// Descriptors to poll.
    pub fn handles(&self) -> &[BorrowedFd<'a>] {
        &self.handles
    }

    /// Removes those that have ended. `ready`: for each handle, whether it is readable.
    pub fn retain(&mut self, ready: &[bool]) {
        let mut ended = ready.iter();
        self.handles.retain(|_| ended.next() != Some(&true));
        self.threads.retain(|(id, started)| started.is_some_and(|at| processes::is_still(*id, at)));
    }

    pub fn is_empty(&self) -> bool {
        self.handles.is_empty() && self.threads.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_runs_has_not_ended() {
        let id = std::process::id();
        let followed = Followed(vec![Member::of(id).unwrap()]);
        assert!(!followed.has_ended());
        assert_eq!((followed.processes().count(), followed.threads().count()), (1, 0));
    }

    #[test]
    fn a_thread_is_watched_with_and_without_a_handle() {
        let (send, receive) = std::sync::mpsc::channel();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            // SAFETY: no pointers.
            send.send(unsafe { libc::gettid() } as u32).unwrap();
            let _ = wait.recv();
        });
        let tid = receive.recv().unwrap();
        let with = Followed(vec![Member::of(tid).unwrap()]);
        let started = End::Started(processes::started(tid));
        let process = std::process::id();
        let without = Followed(vec![Member { id: tid, process, end: started }]);
        assert_eq!(with.threads().collect::<Vec<_>>(), [(process, tid)]);
        assert!(!with.has_ended() && !without.has_ended());
        drop(go);
        thread.join().unwrap();
        // The kernel frees the thread some time after it was joined.
        while !with.has_ended() || !without.has_ended() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn one_that_does_not_exist() {
        let error = Member::of(u32::MAX / 2).err().unwrap();
        assert_eq!(error.message, "there is no process or thread 2147483647");
    }
}
