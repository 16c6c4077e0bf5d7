// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Decides which programs are recorded: checks a file that was found, and finds the process that it
//! belongs to.

use super::Worker;
use crate::user::facts::Unusable;
use crate::user::file::ProgramFile;
use crate::user::folder::{Folder, Found};
use crate::user::process::{self, Claim, Elsewhere, Owner};
use crate::user::program::{Program, broken, title};
use klogger_log::ledger::Key;
use klogger_os as os;
use klogger_ring::clock::Source;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A program makes its file visible shortly before it has mapped it.
pub const MAPPED_WITHIN: Duration = Duration::from_millis(300);
/// If no process of its number has mapped a file after this time, it may belong to a process of
/// another pid namespace.
const MAPPED_SOON: Duration = Duration::from_millis(10);
/// So long a program may be claimed by another klogger that does not record it, such as `klogger
/// rescue`, before it is refused.
pub const TAKEN_WITHIN: Duration = Duration::from_secs(5);
/// How many files of one user may wait to be mapped; further ones are decided at once.
const WAITING_MAX: usize = 4096;
/// How many refused files are remembered, so that each is reported once.
const SEEN_MAX: usize = 64 << 10;

/// A file that may be a program's, and the time since when it is known.
pub struct Candidate {
    found: Found,
    since: Instant,
}

impl Worker {
    /// Examines new files, and again those that no process had mapped yet.
    pub(super) fn take_in(&mut self, now: Instant) {
        let mut candidates = std::mem::take(&mut self.waiting);
        let known = candidates.len();
        candidates.extend(self.found.try_iter().map(|found| Candidate { found, since: now }));
        let new = candidates.len() - known;
        // Computed once for all files, and only if needed.
        let mut elsewhere = None;
        for candidate in candidates {
            self.look_at(candidate, now, &mut elsewhere);
        }
        self.shared.looked_at.fetch_add(new, Ordering::Release);
    }

    fn look_at(&mut self, candidate: Candidate, now: Instant, elsewhere: &mut Option<Elsewhere>) {
        let Candidate { found, since } = candidate;
        let Found { folder, name, only } = found.clone();
        let place = format!("{}/{}", folder.path.display(), name.to_string_lossy());
        let file = match ProgramFile::open(&folder, &name) {
            Ok(file) if only.is_none_or(|only| only == file.id) => file,
            Ok(_) => {
                let why = "it is not the file that the process has mapped";
                return self.out.complaints.say(Key::UserHostile, &place, why);
            }
            Err(Unusable::Foreign) => return,
            Err(Unusable::Refused(why)) => {
                return self.out.complaints.say(Key::UserRefused, &place, &why);
            }
            Err(Unusable::Hostile(why)) => {
                self.condemn(found);
                return self.out.complaints.say(Key::UserHostile, &place, &why);
            }
        };
        if self.seen.contains(&(file.id, name.clone())) {
            return;
        }
        let (pid, text) = (file.facts.pid, name.to_string_lossy().into_owned());
        let mut owner = process::owner_by_number(pid, file.id.inode, &text);
        let soon = owner == Owner::Nobody && now - since < MAPPED_SOON;
        if !soon && !matches!(owner, Owner::Process(_)) {
            let found =
                elsewhere.get_or_insert_with(Elsewhere::look).owner(pid, file.id.inode, &text);
            owner = found.map_or(owner, Owner::Process);
        }
        let late = now - since >= MAPPED_WITHIN || !process::thread_exists(pid, pid);
        if owner == Owner::Nobody && (soon || !late) && !self.waits_for_too_many(&folder) {
            return self.waiting.push(Candidate { found, since });
        }
        if self.concerns(&file, owner) {
            let passes = now - since < TAKEN_WITHIN && is_taken_for_a_moment(file.pid_armed());
            if passes && !self.waits_for_too_many(&folder) {
                return self.waiting.push(Candidate { found, since });
            }
            self.forget_refused();
            self.seen.insert((file.id, name));
            self.begin(file, owner);
        } else if file.is_orphaned() {
            file.silence();
        }
    }

    fn waits_for_too_many(&self, folder: &Folder) -> bool {
        self.waiting.len() >= WAITING_MAX
            && self.waiting.iter().filter(|c| c.found.folder.uid == folder.uid).count()
                >= WAITING_MAX
    }

    /// The file is removed when the process of its number has ended.
    fn condemn(&mut self, found: Found) {
        let is_it =
            |other: &Found| other.name == found.name && Arc::ptr_eq(&other.folder, &found.folder);
        if !found.folder.lent
            && self.condemned.len() < SEEN_MAX
            && !self.condemned.iter().any(is_it)
        {
            self.condemned.push(found);
        }
    }

    /// Limits the memory for refused files.
    fn forget_refused(&mut self) {
        if self.seen.len() >= SEEN_MAX {
            self.seen = self.programs.iter().map(|p| (p.file.id, p.file.name.clone())).collect();
        }
    }

    fn concerns(&self, file: &ProgramFile, owner: Owner) -> bool {
        let pid = match owner {
            Owner::Process(pid) => Some(pid),
            Owner::Unknown => {
                Some(file.facts.pid).filter(|pid| process::runs_as(*pid, file.folder.uid))
            }
            // A process that has ended can have logged for us only if it was ours from the
            // beginning.
            Owner::Nobody => None,
        };
        let claim = Claim { pid, has_token: self.has_token(file) };
        self.settings.scope.concerns(&claim, &self.known, &*self.settings.in_kernel_scope)
    }

    fn has_token(&self, file: &ProgramFile) -> bool {
        file.facts.token == self.settings.token
    }

    /// Whether the program has armed itself for this recording, or is a child that inherited this.
    fn is_ours(&self, file: &ProgramFile, armed: u32) -> bool {
        armed == std::process::id() && self.has_token(file)
    }

    fn begin(&mut self, file: ProgramFile, owner: Owner) {
        let pid = if let Owner::Process(pid) = owner { pid } else { file.facts.pid };
        let armed = file.pid_armed();
        let ours = self.is_ours(&file, armed);
        if let Some(why) = self.reason_against(&file, armed) {
            return self.refuse(&file, ours, &title(pid), &why);
        }
        let shared = self.shared.clone();
        let Ok(mut catalogue) = shared.catalogue.lock() else { return };
        let mut program = match Program::new(file, owner, ours, &mut catalogue, &mut self.out) {
            Ok(program) => program,
            Err(refused) => {
                drop(catalogue);
                if let Some(why) = refused.why {
                    self.refuse(&refused.file, ours, &title(pid), &why);
                }
                return;
            }
        };
        let uid = program.file.folder.uid;
        let allowed = self.shares.left(uid, &self.taken) / program.slot_bytes();
        if ours {
            program.notify_of_death(self.robust.as_ref());
        }
        match ours {
            true => program.switch(&catalogue),
            false => {
                if let Err(other) = program.file.claim(armed, std::process::id()) {
                    return self.out.complaints.say(
                        Key::UserRefused,
                        &program.title,
                        &recorded_by(other),
                    );
                }
                program.file.set_token(self.settings.token);
                program.notify_of_death(self.robust.as_ref());
                if program.forget_past().is_err() || program.file.is_broken() {
                    return self.out.complaints.say(
                        Key::UserHostile,
                        &program.title,
                        &broken().to_string(),
                    );
                }
                program.open(allowed.min(u32::MAX.into()) as u32, &catalogue);
            }
        }
        self.out.tell_of(program.pid, program.pid);
        self.known.add(program.pid);
        self.recorded += 1;
        self.programs.push(program);
    }

    fn refuse(&mut self, file: &ProgramFile, ours: bool, title: &str, why: &str) {
        if ours {
            file.disarm();
        }
        self.out.complaints.say(Key::UserRefused, title, why);
    }

    fn reason_against(&self, file: &ProgramFile, armed: u32) -> Option<String> {
        if file.facts.flight {
            return Some("it is a flight recorder; 'klogger rescue' saves its events".into());
        }
        if armed != 0 && armed != std::process::id() && is_recorder(armed) {
            return Some(recorded_by(armed));
        }
        if file.facts.clock == Source::Tsc && self.settings.source != Source::Tsc {
            return Some(
                "it reads the CPU's time-stamp counter, which this kernel does not trust".into(),
            );
        }
        self.shares.reason_against(file.folder.uid, file.facts.size as u64, &self.take_stock())
    }

    /// Removes broken files for which only the process id in the name is usable, when there is no
    /// such process any more.
    pub(super) fn remove_condemned(&mut self) {
        self.condemned.retain(|found| {
            let number =
                found.name.to_string_lossy().split('.').next().and_then(|pid| pid.parse().ok());
            let alive = number.is_some_and(|pid| process::thread_exists(pid, pid));
            if !alive {
                let _ = os::files::remove_in(&found.folder.file, &found.name);
            }
            alive
        });
    }
}

fn recorded_by(pid: u32) -> String {
    format!("it is being recorded already, by process {pid}")
}

/// Whether the klogger that has claimed a program is none that records.
fn is_taken_for_a_moment(armed: u32) -> bool {
    armed != 0
        && armed != std::process::id()
        && is_recorder(armed)
        && !os::recorders::is_recording(armed)
}

/// Whether a process is a klogger that may be recording.
pub fn is_recorder(pid: u32) -> bool {
    os::recorders::is_recording(pid)
        || std::fs::read_to_string(format!("/proc/{pid}/comm"))
            .is_ok_and(|comm| comm.trim_end() == "klogger")
}
