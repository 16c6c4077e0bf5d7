// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Which threads the programs choose: `struct klogger_choice` of the BPF runtime.

use crate::request::Request;
use crate::threads::Threads;
use klogger_os::Error;
use klogger_os::cgroups::Cgroup;
use klogger_os::processes::NAME_MAX;
use klogger_ring::layout::bpf as layout;

/// Bytes of a name, which ends with a NUL.
const NAME: usize = NAME_MAX + 1;

/// Lists of fixed size, and how many of each there are.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// Threads are chosen among all, not only among those that are followed.
    pub all: bool,
    comms: ([[u8; NAME]; layout::CHOICES], usize),
    users: ([u32; layout::CHOICES], usize),
    cgroups: ([u64; layout::CHOICES], usize),
    controllers: ([u32; layout::CHOICES], usize),
}

impl Choice {
    /// `None`: all threads are recorded that are followed.
    pub fn of(request: &Request) -> Result<Option<Choice>, Error> {
        let Threads { comms, users, cgroups } = &request.threads;
        if request.threads.are_all() {
            return Ok(None);
        }
        let name = |comm: &String| {
            let mut name = [0; NAME];
            name.iter_mut().zip(comm.bytes().take(NAME_MAX)).for_each(|(to, from)| *to = from);
            name
        };
        let controllers = cgroups.iter().map(controller).collect::<Result<Vec<u32>, Error>>()?;
        Ok(Some(Choice {
            all: !request.target.is_scoped(),
            comms: list(comms.iter().map(name), "--comm")?,
            users: list(users.iter().map(|user| user.id), "--uid")?,
            cgroups: list(cgroups.iter().map(|cgroup| cgroup.id), "--cgroup")?,
            controllers: list(controllers.into_iter(), "--cgroup")?,
        }))
    }

    /// Stores it in the bytes of a `struct klogger_config`.
    /// `builtin`: of the object with the built-in events.
    pub fn put(&self, builtin: bool, bytes: &mut [u8]) {
        let mut put = |at: usize, value: &[u8]| {
            let at = layout::CONFIG_CHOICE + at;
            bytes[at..at + value.len()].copy_from_slice(value);
        };
        put(layout::CHOICE_ALL, &[u8::from(self.all)]);
        put(layout::CHOICE_BUILTIN, &[u8::from(builtin)]);
        put(layout::CHOICE_COMMS, &(self.comms.1 as u32).to_ne_bytes());
        put(layout::CHOICE_USERS, &(self.users.1 as u32).to_ne_bytes());
        put(layout::CHOICE_CGROUPS, &(self.cgroups.1 as u32).to_ne_bytes());
        put(layout::CHOICE_COMM, self.comms.0.as_flattened());
        put(layout::CHOICE_USER, self.users.0.map(u32::to_ne_bytes).as_flattened());
        put(layout::CHOICE_CGROUP, self.cgroups.0.map(u64::to_ne_bytes).as_flattened());
        let controllers = self.controllers.0.map(u32::to_ne_bytes);
        put(layout::CHOICE_CONTROLLER, controllers.as_flattened());
    }
}

/// The number of the controller by which the programs find the hierarchy of a group; 0: version 2.
fn controller(cgroup: &Cgroup) -> Result<u32, Error> {
    let number = |name: &String| {
        layout::CONTROLLERS.iter().find(|(known, _)| known == name).map(|(_, number)| *number)
    };
    if cgroup.controllers.is_empty() {
        return Ok(0);
    }
    cgroup.controllers.iter().find_map(number).ok_or_else(|| {
        let known: Vec<&str> = layout::CONTROLLERS.iter().map(|(name, _)| *name).collect();
        Error::new(format!("klogger cannot follow the groups of {}", cgroup.controllers.join(",")))
            .help(format!("name a group of one of these controllers: {}", known.join(", ")))
    })
}

/// The values, and how many there are.
fn list<T: Copy + Default>(
    values: impl ExactSizeIterator<Item = T>,
    option: &str,
) -> Result<([T; layout::CHOICES], usize), Error> {
    let (mut list, count) = ([T::default(); layout::CHOICES], values.len());
    if count > list.len() {
        let most = list.len();
        return Err(Error::new(format!(
            "{option} has {count} values, and at most {most} are possible"
        ))
        .help("give fewer, or record all threads with -a"));
    }
    list.iter_mut().zip(values).for_each(|(to, value)| *to = value);
    Ok((list, count))
}
