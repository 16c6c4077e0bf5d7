// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The existing processes and threads, from /proc.

use crate::{missed, patient};
use std::{fs, io};

/// The contents of a PROCESS_EXISTS event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    pub tid: u32,
    pub tgid: u32,
    pub ppid: u32,
    pub prio: i32,
    pub policy: i32,
    pub comm: Vec<u8>,
    pub command: Vec<u8>,
}

/// Bytes of the longest name of a thread.
pub const NAME_MAX: usize = 15;

/// Ids of all processes. If /proc hides those of other users, the ledger says so: number 1 always
/// is there.
pub fn all_processes() -> Vec<u32> {
    let all = numbers("/proc");
    if !all.is_empty() && !all.contains(&1) {
        missed::note("processes of other users", &io::Error::other("/proc hides them (hidepid)"));
    }
    all
}

/// Whether there is a process, or thread, of this number.
pub fn exists(pid: u32) -> bool {
    // SAFETY: no pointers; signal 0 is not sent.
    let sent = unsafe { libc::kill(pid.cast_signed(), 0) };
    sent == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// Whether a process has a thread of this number. It may be hidden in /proc.
pub fn thread_exists(pid: u32, tid: u32) -> bool {
    let (pid, tid) = (pid.cast_signed(), tid.cast_signed());
    // SAFETY: no pointers; signal 0 is not sent.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, 0) };
    let error = io::Error::last_os_error().raw_os_error();
    sent == 0 || !matches!(error, Some(libc::ESRCH | libc::EINVAL))
}

/// Ids of all threads of a process; none if it has ended.
pub fn threads_of(pid: u32) -> Vec<u32> {
    numbers(&format!("/proc/{pid}/task"))
}

/// The name of a thread of this process; empty if it has ended.
pub fn own_name(tid: u32) -> String {
    fs::read_to_string(format!("/proc/self/task/{tid}/comm"))
        .unwrap_or_default()
        .trim_end_matches('\n')
        .into()
}

fn numbers(folder: &str) -> Vec<u32> {
    // That of a process may be gone.
    let entries = missed::noting_unless_gone("processes in /proc", fs::read_dir(folder));
    let entry = |entry| missed::noting_unless_gone("processes in /proc", entry);
    let entries = entries.into_iter().flatten().filter_map(entry);
    let mut list: Vec<u32> = entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    list.sort_unstable();
    list
}

/// `None` if the thread has ended.
pub fn thread(pid: u32, tid: u32) -> Option<Thread> {
    let stat = look(&format!("/proc/{pid}/task/{tid}/stat"), "stat")?;
    let command = patient::read(pid, "cmdline");
    let mut command = missed::noting_unless_gone("/proc/PID/cmdline", command).unwrap_or_default();
    while command.last() == Some(&0) {
        command.pop();
    }
    command.iter_mut().filter(|c| **c == 0).for_each(|c| *c = b' ');
    parse_stat(&stat, tid, pid, command)
}

/// The name of a thread, as its events have it; `None` if it has ended. /proc adds to the name of a
/// kernel worker what it does.
pub fn name_of(tid: u32) -> Option<Vec<u8>> {
    let mut name = look(&format!("/proc/{tid}/comm"), "comm")?;
    if name.last() == Some(&b'\n') {
        name.pop();
    }
    // Programs choose their names as well.
    let adds = name.starts_with(b"kworker/") && is_kernel_thread(tid);
    Some(without_work(name, adds))
}

/// Kernel threads have no memory of their own. If it has ended, it is none.
pub fn is_kernel_thread(tid: u32) -> bool {
    look(&format!("/proc/{tid}/stat"), "stat").is_some_and(|stat| is_of_kernel(&stat))
}

fn is_of_kernel(stat: &[u8]) -> bool {
    /// include/linux/sched.h
    const PF_KTHREAD: u64 = 0x0020_0000;
    let text = String::from_utf8_lossy(stat);
    // After the name come the state (field 3) and numbers; the flags are field 9.
    let rest = text.rsplit_once(')').map(|(_, rest)| rest);
    let flags = rest.and_then(|rest| rest.split_ascii_whitespace().nth(9 - 3)?.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & PF_KTHREAD != 0)
}

/// `adds`: /proc may have added to the name what the thread does.
fn without_work(mut name: Vec<u8>, adds: bool) -> Vec<u8> {
    if adds && name.starts_with(b"kworker/") {
        let end = name.iter().position(|c| matches!(c, b'-' | b'+')).unwrap_or(name.len());
        name.truncate(end);
    }
    name.truncate(NAME_MAX);
    name
}

/// A thread by its id alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    pub tgid: u32,
    pub comm: Vec<u8>,
    /// When it started: ns since boot, down to a hundredth of a second.
    pub start_ns: u64,
}

/// `None` if there is no thread with this id.
pub fn named(tid: u32) -> Option<Named> {
    let stat = look(&format!("/proc/{tid}/stat"), "stat")?;
    let tgid = process_of(tid)?;
    let comm = parse_stat(&stat, tid, tgid, Vec::new())?.comm;
    let comm = without_work(comm, is_of_kernel(&stat));
    // SAFETY: no pointers.
    let per_second = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok()?;
    let start_ns = start_of(&stat)?.checked_mul(1_000_000_000)?.checked_div(per_second)?;
    Some(Named { tgid, comm, start_ns })
}

/// The effective user of a thread.
pub fn user_of(tid: u32) -> Option<u32> {
    let status = look(&format!("/proc/{tid}/status"), "status")?;
    let status = String::from_utf8_lossy(&status);
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The process that a thread belongs to; `None` if there is no such thread.
pub fn process_of(tid: u32) -> Option<u32> {
    let status = look(&format!("/proc/{tid}/status"), "status")?;
    let status = String::from_utf8_lossy(&status);
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

/// The number of a process in its own pid namespace.
pub fn own_number(pid: u32) -> Option<u32> {
    innermost(&format!("/proc/{pid}/status"))
}

/// The thread of process `pid` whose number in its own pid namespace is `tid`.
pub fn thread_of_own_number(pid: u32, tid: u32) -> Option<u32> {
    let own = |t: &u32| innermost(&format!("/proc/{pid}/task/{t}/status"));
    threads_of(pid).into_iter().find(|t| own(t) == Some(tid))
}

/// The last number after `NSpid:` in a file such as `/proc/1/status`.
fn innermost(status: &str) -> Option<u32> {
    let text = look(status, "status")?;
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().find_map(|l| l.strip_prefix("NSpid:"))?;
    line.split_ascii_whitespace().last()?.parse().ok()
}

/// When a process or a thread was started, in ticks since boot. Together with this, its id is
/// unique.
pub fn started(pid: u32) -> Option<u64> {
    start_of(&look(&format!("/proc/{pid}/stat"), "stat")?)
}

/// Where the stack of a process begins; each program that it runs has another place for it. `None`:
/// it has ended, or is not known.
pub fn stack_of(pid: u32) -> Option<u64> {
    number_of(&look(&format!("/proc/{pid}/stat"), "stat")?, 28).filter(|start| *start != 0)
}

/// Whether the process, or thread, that was started then still is there. If that cannot be read,
/// whether there is one of its number.
pub fn is_still(pid: u32, since: u64) -> bool {
    match fs::read(format!("/proc/{pid}/stat")) {
        Ok(stat) => start_of(&stat) == Some(since),
        Err(e) => {
            missed::noting_unless_gone::<()>("/proc/PID/stat", Err(e));
            exists(pid)
        }
    }
}

/// A file of a process or thread; `None`: it has ended, or the ledger says why it cannot be read.
fn look(path: &str, name: &str) -> Option<Vec<u8>> {
    missed::noting_unless_gone(&format!("/proc/PID/{name}"), fs::read(path))
}

fn start_of(stat: &[u8]) -> Option<u64> {
    number_of(stat, 22)
}

/// A field of `stat` by its number. The state, field 3, follows the name.
fn number_of(stat: &[u8], field: usize) -> Option<u64> {
    let text = String::from_utf8_lossy(stat);
    text.rsplit_once(')')?.1.split_ascii_whitespace().nth(field - 3)?.parse().ok()
}

/// The name is in parentheses and may contain any byte, also `)`. The fields after it are numbers.
fn parse_stat(stat: &[u8], tid: u32, tgid: u32, command: Vec<u8>) -> Option<Thread> {
    let open = stat.iter().position(|c| *c == b'(')?;
    let close = stat.iter().rposition(|c| *c == b')')?;
    let comm = stat.get(open + 1..close)?.to_vec();
    let rest = std::str::from_utf8(stat.get(close + 1..)?).ok()?;
    // proc(5) counts from 1; the state after the name is field 3.
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let field = |n: usize| fields.get(n - 3).copied();
    Some(Thread {
        tid,
        tgid,
        ppid: field(4)?.parse().ok()?,
        prio: field(18)?.parse().ok()?,
        policy: field(41)?.parse().ok()?,
        comm,
        command,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_contain_parentheses() {
        let stat = b"7 (a) b) S 3 7 7 0 -1 1 0 0 0 0 0 0 0 0 20 0 1 0 9 1 1 1 1 1 1 1 1 0 0 0 0 0 \
                     0 0 17 1 0 2 0 0 0";
        let t = parse_stat(stat, 7, 7, Vec::new()).unwrap();
        assert_eq!((t.comm.as_slice(), t.ppid, t.prio, t.policy), (&b"a) b"[..], 3, 20, 2));
        assert_eq!(parse_stat(b"7 (x", 7, 7, Vec::new()), None);
    }

    #[test]
    fn this_thread_exists() {
        let me = std::process::id();
        assert!(threads_of(me).contains(&me));
        assert!(!own_name(me).is_empty() && !own_name(me).contains('\n'));
        assert_eq!(thread(me, me).unwrap().tgid, me);
        assert_eq!(name_of(me).unwrap(), own_name(me).as_bytes());
        assert!(user_of(me).is_some() && name_of(u32::MAX / 2).is_none());
        let named_me = named(me).unwrap();
        assert_eq!((named_me.tgid, named_me.comm), (me, name_of(me).unwrap()));
        assert!(named_me.start_ns > 0 && named(u32::MAX / 2).is_none());
        assert_eq!(without_work(b"kworker/0:1H-kblockd".to_vec(), true), b"kworker/0:1H");
        assert_eq!(without_work(b"kworker/u8:1-x".to_vec(), false), b"kworker/u8:1-x");
        let stat = |flags: &str| format!("2 (kworker/0:1) S 1 0 0 0 -1 {flags} 0 0 0");
        assert!(
            is_of_kernel(stat("2129984").as_bytes()) && !is_of_kernel(stat("4194304").as_bytes())
        );
        assert!(!is_kernel_thread(me) && !is_kernel_thread(u32::MAX / 2));
        assert_eq!((process_of(me), process_of(u32::MAX / 2)), (Some(me), None));
        // A test may run in a container.
        assert!(own_number(me).is_some_and(|own| thread_of_own_number(me, own) == Some(me)));
        assert_eq!(own_number(u32::MAX / 2), None);
        assert!(started(me) >= started(1));
        assert_eq!(started(u32::MAX / 2), None);
    }
}
