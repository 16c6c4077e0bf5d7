// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Which of the threads that are followed are recorded: those with certain names, of certain users,
//! in certain cgroups.

use klogger_log::preamble;
use klogger_os::cgroups::Cgroup;
use klogger_os::processes;

/// A user whose threads are chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// As the user of klogger wrote it.
    pub name: String,
    pub id: u32,
}

/// What a thread must match: one of each list that is not empty. None: all threads.
#[derive(Clone, Debug, Default)]
pub struct Threads {
    pub comms: Vec<String>,
    pub users: Vec<User>,
    pub cgroups: Vec<Cgroup>,
}

impl Threads {
    /// Whether every thread matches.
    pub fn are_all(&self) -> bool {
        self.option().is_none()
    }

    /// The first option that chooses threads.
    pub fn option(&self) -> Option<&'static str> {
        let lists = [
            ("--comm", self.comms.is_empty()),
            ("--uid", self.users.is_empty()),
            ("--cgroup", self.cgroups.is_empty()),
        ];
        lists.iter().find(|(_, is_empty)| !is_empty).map(|(option, _)| *option)
    }

    /// Whether a thread matches now, by what /proc says.
    pub fn has(&self, tid: u32) -> bool {
        let is_named = |name: Vec<u8>| self.comms.iter().any(|comm| comm.as_bytes() == name);
        let is_users = |id: u32| self.users.iter().any(|user| user.id == id);
        (self.comms.is_empty() || processes::name_of(tid).is_some_and(is_named))
            && (self.users.is_empty() || processes::user_of(tid).is_some_and(is_users))
            && (self.cgroups.is_empty() || self.cgroups.iter().any(|cgroup| cgroup.has(tid)))
    }

    /// How the log has it.
    pub fn text(&self) -> preamble::Threads {
        preamble::Threads {
            comms: self.comms.clone(),
            users: self.users.iter().map(|user| user.name.clone()).collect(),
            cgroups: self.cgroups.iter().map(Cgroup::text).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_must_match_each_list() {
        let me = std::process::id();
        let name = processes::own_name(me);
        let user = |id| User { name: String::new(), id };
        let mine = processes::user_of(me).unwrap();
        let threads = |comms: &[&str], users: &[u32]| Threads {
            comms: comms.iter().map(|c| c.to_string()).collect(),
            users: users.iter().map(|id| user(*id)).collect(),
            cgroups: Vec::new(),
        };
        assert!(threads(&[], &[]).has(me) && threads(&[], &[]).are_all());
        assert!(threads(&["x", &name], &[]).has(me) && threads(&[&name], &[mine]).has(me));
        assert!(!threads(&["x"], &[mine]).has(me) && !threads(&[&name], &[mine + 1]).has(me));
        assert!(!threads(&[&name], &[]).has(u32::MAX / 2));
        assert_eq!(threads(&[], &[1]).option(), Some("--uid"));
    }
}
