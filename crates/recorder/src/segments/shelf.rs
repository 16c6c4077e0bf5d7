// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The segments that have ended: those that wait to be completed, and those that are complete, of
//! which the oldest are deleted.
//!
//! Only a user who has said what is to be kept (`--keep`) has segments deleted. Then, on a full
//! disk, the oldest goes, whether it is complete or not: those that wait may fill the disk, and the
//! thread that has them completed may itself wait for the writer.

use super::{Keep, Plan, SegmentEnd, Told};
use crate::destination::Destination;
use crate::hung::watched;
use klogger_log::ledger::{Entry, Key};
use klogger_log::segments;
use klogger_log::writer::{Summary, Writer};
use klogger_os::outputs::Folder;
use std::collections::VecDeque;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Segments that may wait to be completed. If there are more, a segment becomes longer instead.
const WAITING_MAX: usize = 8;
/// How long the writer waits on a full disk while the oldest segment is being completed. The thread
/// that does it waits for nobody, but the names of code take time.
const PATIENCE: Duration = Duration::from_secs(30);

/// A segment that has ended.
pub struct Closing {
    pub about: SegmentEnd,
    pub writer: Writer<Destination>,
}

struct Done {
    number: u32,
    bytes: u64,
    serials: u64,
    ended: Instant,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Closing>,
    /// Segments that are neither being written nor complete.
    open: usize,
    complete: VecDeque<Done>,
    /// The last that was deleted, how many events all of them had and had
    /// lost, and whether the disk was full.
    deleted: Option<(u32, u64, bool)>,
    /// Segments that could not be removed.
    stayed: u32,
    /// The last that was deleted when the writer was last told of room.
    told_of: Option<u32>,
    retry: Option<Instant>,
    /// Messages for the user.
    notes: Vec<String>,
    told: Told,
}

impl State {
    /// The number of the last segment that was deleted.
    fn last_deleted(&self) -> Option<u32> {
        self.deleted.map(|(number, ..)| number)
    }
}

/// See the head of the file.
pub struct Shelf {
    folder: Folder,
    plan: Plan,
    patience: Duration,
    state: Mutex<State>,
    changed: Condvar,
}

impl Shelf {
    pub fn new(folder: Folder, plan: Plan) -> Shelf {
        let (state, changed) = (Mutex::default(), Condvar::new());
        Shelf { folder, plan, patience: PATIENCE, state, changed }
    }

    /// Waits so long for a segment that is being completed.
    #[cfg(test)]
    pub fn patient(self, patience: Duration) -> Shelf {
        Shelf { patience, ..self }
    }

    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn put(&self, closing: Closing) {
        let mut state = self.state();
        state.open += 1;
        state.waiting.push_back(closing);
    }

    /// The next segment to be completed.
    pub fn take(&self) -> Option<Closing> {
        self.state().waiting.pop_front()
    }

    pub fn is_behind(&self) -> bool {
        self.state().open >= WAITING_MAX
    }

    pub fn retry_at(&self, when: Instant) {
        self.state().retry = Some(when);
    }

    pub fn may_retry(&self, now: Instant) -> bool {
        self.state().retry.is_none_or(|when| now >= when)
    }

    /// Has this said to the user.
    pub fn note(&self, what: String) {
        self.state().notes.push(what);
    }

    pub fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut self.state().notes)
    }

    /// Of entries of the whole recording, those that no ledger of a segment has.
    pub fn untold(&self, entries: Vec<Entry>, since_ns: u64) -> Vec<Entry> {
        self.state().told.rest(entries, since_ns)
    }

    /// A segment is complete.
    pub fn completed(&self, number: u32, summary: &Summary) {
        let mut state = self.state();
        state.open -= 1;
        let (bytes, serials) = (summary.bytes, serials(summary));
        state.complete.push_back(Done { number, bytes, serials, ended: Instant::now() });
        self.changed.notify_all();
    }

    /// The segment that was being completed, the oldest of all, found no room on a full disk. Its
    /// file must be closed, because it is deleted.
    pub fn given_up(&self, number: u32, summary: &Summary) {
        let mut state = self.state();
        state.open -= 1;
        self.remove(&mut state, number, serials(summary), true);
        self.changed.notify_all();
    }

    /// Deletes what need not be kept. `writing`: bytes of the segment that is being written, which
    /// will have those of a whole one before this is called again.
    pub fn trim(&self, writing: u64) {
        let writing = writing.max(self.plan.size.unwrap_or(0));
        let mut state = self.state();
        while let Some(oldest) = state.complete.front() {
            let Keep { segments, bytes, age } = &self.plan.keep;
            let all = writing + state.complete.iter().map(|done| done.bytes).sum::<u64>();
            let many = segments.is_some_and(|most| state.complete.len() > most as usize);
            let large = bytes.is_some_and(|most| all > most);
            let old = age.is_some_and(|most| oldest.ended.elapsed() > most);
            if !many && !large && !old {
                return;
            }
            self.delete(&mut state, false);
        }
    }

    /// Whether segments may be deleted at all. Without `--keep`, the disk may be full of what
    /// others have written.
    pub fn may_delete(&self) -> bool {
        self.plan.keep != Keep::default()
    }

    /// Deletes the oldest segment because the disk is full; if it is being completed, when that is
    /// done. False if there is none but that which is being written, or none may be deleted.
    pub fn make_room(&self) -> bool {
        if !self.may_delete() {
            return false;
        }
        let deadline = Instant::now() + self.patience;
        let mut state = self.state();
        loop {
            // Others may have made room since the writer found none.
            let made = state.last_deleted() != state.told_of
                || self.delete(&mut state, true)
                || self.give_up_waiting(&mut state);
            if made {
                state.told_of = state.last_deleted();
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if state.open == 0 || left.is_zero() {
                return false;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Deletes the oldest segment if it is complete.
    pub fn make_room_now(&self) -> bool {
        self.may_delete() && self.delete(&mut self.state(), true)
    }

    fn delete(&self, state: &mut State, full: bool) -> bool {
        while let Some(Done { number, serials, .. }) = state.complete.pop_front() {
            if self.remove(state, number, serials, full) {
                return true;
            }
        }
        false
    }

    /// Deletes the oldest segment that waits to be completed: completing it would be in vain. None
    /// may be complete. Not while one before it is being completed: there would be a gap.
    fn give_up_waiting(&self, state: &mut State) -> bool {
        if state.open > state.waiting.len() {
            return false;
        }
        let Some(Closing { about, writer }) = state.waiting.pop_front() else { return false };
        let serials = serials(&writer.summary());
        // While it is open, it takes space.
        drop(writer);
        state.open -= 1;
        self.remove(state, about.number, serials, true)
    }

    /// `full`: because the disk is.
    /// False: it is still there.
    fn remove(&self, state: &mut State, number: u32, serials: u64, full: bool) -> bool {
        let name = segments::file_name(number);
        let path = self.folder.path().join(&name);
        if let Err(e) = watched(path, || self.folder.remove(name.as_ref()))
            // If a user has deleted it already, that is as good.
            && e.kind() != io::ErrorKind::NotFound
        {
            state.notes.push(format!("{name} cannot be removed, and stays: {e}"));
            state.stayed += 1;
            return false;
        }
        let (events, was_full) =
            state.deleted.map_or((0, false), |(_, events, full)| (events, full));
        if full && !was_full {
            let what = "the disk is full: the oldest segments are removed to make room";
            state.notes.push(what.into());
        }
        state.deleted = Some((number, events.saturating_add(serials), full || was_full));
        true
    }

    /// What the ledger says of the segments that have been deleted.
    pub fn deleted(&self) -> Option<Entry> {
        let state = self.state();
        let (last, events, full) = state.deleted?;
        let why = if full { ", at times because the disk was full" } else { "" };
        let stayed = match state.stayed {
            0 => String::new(),
            n => format!(", but for {n} that could not be removed"),
        };
        let what = match last {
            1 => format!("segment 1{stayed}{why}"),
            _ => format!("segments 1 to {last}{stayed}{why}"),
        };
        Some(Entry::new(Key::SegmentsRemoved).count(events).detail(&what))
    }
}

/// How many events a segment has, and has lost.
fn serials(summary: &Summary) -> u64 {
    summary.events.saturating_add(summary.lost)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    /// With five complete segments of 100 bytes and 7 serial numbers that ended ten seconds apart,
    /// the last one ten seconds ago.
    fn shelf(folder: &Path, keep: Keep, size: Option<u64>) -> Shelf {
        let shelf = Shelf::new(Folder::open(folder).unwrap(), Plan { keep, size, age: None });
        for number in 1..=5 {
            fs::write(folder.join(segments::file_name(number)), "").unwrap();
            let ended = Instant::now()
                .checked_sub(Duration::from_secs(10 * u64::from(6 - number)))
                .expect("the machine has been up for a minute");
            let done = Done { number, bytes: 100, serials: 7, ended };
            shelf.state().complete.push_back(done);
        }
        shelf
    }

    fn left_after_trim(keep: Keep, size: Option<u64>, writing: u64) -> Vec<u32> {
        let folder = tempfile::tempdir().unwrap();
        shelf(folder.path(), keep, size).trim(writing);
        segments::numbers(folder.path()).unwrap()
    }

    #[test]
    fn the_newest_are_kept() {
        let keep = Keep::default;
        assert_eq!(left_after_trim(keep(), None, 1 << 40), [1, 2, 3, 4, 5]);
        let two = Keep { segments: Some(2), ..keep() };
        assert_eq!(left_after_trim(two.clone(), None, 0), [4, 5]);
        let bytes = Keep { bytes: Some(350), ..keep() };
        assert_eq!(left_after_trim(bytes.clone(), None, 50), [3, 4, 5]);
        // The one that is being written will have its size.
        assert_eq!(left_after_trim(bytes, Some(150), 50), [4, 5]);
        let age = Keep { age: Some(Duration::from_secs(25)), ..keep() };
        assert_eq!(left_after_trim(age.clone(), None, 0), [4, 5]);
        assert_eq!(left_after_trim(Keep { segments: Some(1), ..age }, None, 0), [5]);
    }

    #[test]
    fn a_full_disk_takes_the_oldest_and_says_so_once() {
        let folder = tempfile::tempdir().unwrap();
        let most = Keep { segments: Some(100), ..Keep::default() };
        let shelf = shelf(folder.path(), most, None);
        assert!(shelf.deleted().is_none());
        assert!(shelf.make_room() && shelf.make_room());
        assert_eq!(segments::numbers(folder.path()).unwrap(), [3, 4, 5]);
        let entry = shelf.deleted().unwrap();
        assert_eq!(entry.count, 14);
        assert!(entry.text.starts_with("segments 1 to 2, at times because the disk was full: "));
        assert_eq!(shelf.take_notes().len(), 1);
        (0..3).for_each(|_| assert!(shelf.make_room()));
        assert!(!shelf.make_room(), "there is none");
        assert!(shelf.take_notes().is_empty());
    }

    #[test]
    fn what_cannot_be_removed_is_not_said_to_be() {
        let folder = tempfile::tempdir().unwrap();
        let two = Keep { segments: Some(2), ..Keep::default() };
        let shelf = shelf(folder.path(), two, None);
        let first = folder.path().join(segments::file_name(1));
        fs::remove_file(&first).unwrap();
        // A folder of that name cannot be removed as a file, by nobody.
        fs::create_dir(&first).unwrap();
        shelf.trim(0);
        assert_eq!(segments::numbers(folder.path()).unwrap(), [1, 4, 5]);
        let entry = shelf.deleted().unwrap();
        let text = "segments 1 to 3, but for 1 that could not be removed: ";
        assert!(entry.count == 14 && entry.text.starts_with(text), "{}", entry.text);
        let notes = shelf.take_notes();
        assert!(notes.len() == 1 && notes[0].starts_with("segment-000001.klog cannot be removed"));
    }

    #[test]
    fn a_full_disk_takes_nothing_if_all_are_to_be_kept() {
        let folder = tempfile::tempdir().unwrap();
        let shelf = shelf(folder.path(), Keep::default(), None);
        assert!(!shelf.make_room() && !shelf.make_room_now());
        assert_eq!(segments::numbers(folder.path()).unwrap(), [1, 2, 3, 4, 5]);
        assert!(shelf.deleted().is_none() && shelf.take_notes().is_empty());
    }
}
