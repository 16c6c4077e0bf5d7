// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Makes slices from their two events, as declared with `slice NAME from EVENT to EVENT` in a
//! schema.
//!
//! Perfetto matches an end with the innermost slice on its track. So a slice is written when its
//! end is known, on the first track of its place on which it overlaps no other partially: the track
//! of the thread or CPU, or one below it, a lane.

use super::proto::{TrackEvent, TrackEventType};
use crate::pairing::{Key, Part, Whose, parts};
use klogger_log::event::EventRef;
use klogger_log::origin::Origin;
use klogger_schema::layout::EventLayout;
use std::collections::HashMap;
use std::rc::Rc;

/// Slices that wait for their ends at most: a log may have any number of begins.
const OPEN_MAX: usize = 1 << 16;

/// A slice that has begun.
struct Open {
    time_ns: u64,
    /// With two names: the slice's, and the event's own, one of which is written.
    event: TrackEvent,
    /// The name of the slice.
    name: String,
    origin: Origin,
}

/// An event of a slice, ready to be written: its track, and the lane of it. Lane 0 is the track
/// itself.
pub struct Written {
    pub time_ns: u64,
    pub event: TrackEvent,
    pub lane: Option<Lane>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Lane {
    pub track: u64,
    pub number: usize,
    pub name: String,
}

/// The slices that were written on one track: for each lane the outermost ones, in the order of
/// time.
#[derive(Default)]
struct Lanes {
    lanes: Vec<Vec<(u64, u64)>>,
    open: usize,
}

pub struct Slices {
    /// By event.
    begins: Vec<Rc<[Part]>>,
    ends: Vec<Rc<[Part]>>,
    open: HashMap<Key, Open>,
    lanes: HashMap<u64, Lanes>,
}

impl Slices {
    pub fn new(events: &[EventLayout]) -> Slices {
        let (begins, ends) = parts(events).into_iter().unzip();
        Slices { begins, ends, open: HashMap::new(), lanes: HashMap::new() }
    }

    /// The slices that an event begins, and those that it ends.
    pub fn of(&self, event: usize) -> (Rc<[Part]>, Rc<[Part]>) {
        (self.begins[event].clone(), self.ends[event].clone())
    }

    /// Whether the limit of waiting slices is reached.
    pub fn full(&self) -> bool {
        self.open.len() >= OPEN_MAX
    }

    /// A begin: `made`, on its track. It ends the same slice if that has begun already.
    pub fn begin(
        &mut self,
        part: &Part,
        event: &EventRef,
        whose: Whose,
        made: TrackEvent,
        out: &mut Vec<Written>,
    ) {
        self.end(part, event, whose, |_| TrackEvent::default(), out);
        self.lanes.entry(made.track_uuid.unwrap_or_default()).or_default().open += 1;
        let open = Open {
            time_ns: event.time_ns,
            event: made,
            name: part.name.clone(),
            origin: event.origin,
        };
        self.open.insert(part.key(event, whose), open);
    }

    /// An end: writes the slice if it has begun; `end` gets the begin.
    pub fn end(
        &mut self,
        part: &Part,
        event: &EventRef,
        whose: Whose,
        end: impl FnOnce(&TrackEvent) -> TrackEvent,
        out: &mut Vec<Written>,
    ) -> bool {
        let Some(open) = self.open.remove(&part.key(event, whose)) else { return false };
        let end = end(&open.event);
        self.write(open, Some((event.time_ns, end)), out);
        true
    }

    /// Ends the slices of a thread that has exited.
    pub fn exit(&mut self, tid: i64, time_ns: u64, out: &mut Vec<Written>) {
        for open in self.take(|key, _| key.whose == Whose::Thread(tid)) {
            self.write(open, Some((time_ns, TrackEvent::default())), out);
        }
    }

    /// Events of `origin` are missing, perhaps ends. Slices that may have ended meanwhile are
    /// written as instants.
    pub fn lost(&mut self, origin: Origin, out: &mut Vec<Written>) {
        let of_kernel = matches!(origin, Origin::Cpu(_));
        for mut open in self.take(|key, open| match key.whose {
            Whose::Thread(_) => of_kernel,
            Whose::Cpu(_) | Whose::User(_) => open.origin == origin,
            Whose::Any => true,
        }) {
            self.close(&open);
            open.event.r#type = Some(TrackEventType::Instant.into());
            open.event.name = None;
            out.push(Written { time_ns: open.time_ns, event: open.event, lane: None });
        }
    }

    /// Writes slices that have not ended.
    pub fn finish(&mut self, out: &mut Vec<Written>) {
        for open in self.take(|_, _| true) {
            self.write(open, None, out);
        }
    }

    /// The latest first, so that inner slices are written before outer ones.
    fn take(&mut self, wanted: impl Fn(&Key, &Open) -> bool) -> Vec<Open> {
        let mut taken: Vec<Open> =
            self.open.extract_if(|key, open| wanted(key, open)).map(|(_, open)| open).collect();
        taken.sort_by(|a, b| (b.time_ns, &b.name).cmp(&(a.time_ns, &a.name)));
        taken
    }

    fn close(&mut self, open: &Open) {
        let track = open.event.track_uuid.unwrap_or_default();
        if let Some(lanes) = self.lanes.get_mut(&track) {
            lanes.open = lanes.open.saturating_sub(1);
            if lanes.open == 0 {
                // Later slices overlap none of these.
                self.lanes.remove(&track);
            }
        }
    }

    /// Writes a begin, and its end if there is one.
    fn write(&mut self, open: Open, end: Option<(u64, TrackEvent)>, out: &mut Vec<Written>) {
        let track = open.event.track_uuid.unwrap_or_default();
        let until = end.as_ref().map_or(u64::MAX, |(time_ns, _)| (*time_ns).max(open.time_ns));
        let number = self.lanes.entry(track).or_default().place(open.time_ns, until);
        self.close(&open);
        let Open { time_ns, event, name, .. } = open;
        let lane = Some(Lane { track, number, name });
        let begin =
            TrackEvent { r#type: Some(TrackEventType::SliceBegin.into()), name_iid: None, ..event };
        out.push(Written { time_ns, event: begin, lane: lane.clone() });
        if let Some((_, end)) = end {
            let event = TrackEvent { r#type: Some(TrackEventType::SliceEnd.into()), ..end };
            out.push(Written { time_ns: until, event, lane });
        }
    }
}

impl Lanes {
    /// The first lane on which a slice overlaps no other partially. All slices there have ended by
    /// `until`.
    fn place(&mut self, from: u64, until: u64) -> usize {
        let fits = |lane: &Vec<(u64, u64)>| {
            let before = lane.partition_point(|(begin, _)| *begin <= from);
            before.checked_sub(1).is_none_or(|i| lane[i].1 <= from)
        };
        let number = self.lanes.iter().position(fits).unwrap_or(self.lanes.len());
        if number == self.lanes.len() {
            self.lanes.push(Vec::new());
        }
        let lane = &mut self.lanes[number];
        let inside = lane.partition_point(|(begin, _)| *begin < from);
        lane.truncate(inside);
        lane.push((from, until));
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partially_overlapping_slices_get_another_lane() {
        let mut lanes = Lanes::default();
        let mut place = |from, until| lanes.place(from, until);
        // Inside of it, and around it.
        assert_eq!((place(20, 30), place(40, 50), place(10, 60)), (0, 0, 0));
        // Begins where another ends.
        assert_eq!(place(60, 70), 0);
        // Begins in the middle of two; then in the middle of one on each lane.
        assert_eq!((place(65, 80), place(66, 81), place(64, 90)), (1, 2, 1));
        // Has the same begin as another one, which is inside of it in time, but not in the file.
        assert_eq!(place(60, 91), 1);
        assert_eq!((place(95, u64::MAX), place(93, u64::MAX)), (0, 0));
    }
}
