// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Finds the hits of patterns among the events of a recording that runs: sequences, silences, and
//! events that nothing else looks at.
//!
//! Events are looked at in the order of time ([`LiveMerge`]). A pattern sees nothing of events that
//! were lost. Its memory is limited, whatever programs log ([`Limits`]); what does not fit is
//! counted.

pub use super::state::Limits;
use super::state::{Role, Stash, State};
use super::{Action, Pattern, Step, Trigger};
use crate::decode::Decoder;
use crate::event::EventRef;
use crate::filter::{Filter, FilterError};
use crate::live::LiveMerge;
use crate::names::Processes;
use crate::origin::Origin;
use crate::preamble::{Addition, Preamble};
use crate::rules::field;
use crate::rules::key::{From, Key};
use crate::symbols::Symbols;
use klogger_schema::layout::EventLayout;

/// Events of the last so many ns are not looked at: a program that has just been found may have
/// logged so long ago.
pub const MARGIN_NS: u64 = 20_000_000;

/// A hit.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// The number of the trigger.
    pub trigger: u16,
    pub time_ns: u64,
    /// The event that fired it; of a silence, the event that did not come.
    pub id: u16,
    /// Of the event; `None` if there was none.
    pub origin: Option<Origin>,
    /// The record of the event; empty if it was not kept.
    pub bytes: &'a [u8],
}

/// The patterns of a recording.
pub struct Matcher<S> {
    merge: LiveMerge<S>,
    watched: Vec<Watched>,
    /// By event id.
    terms: Vec<Vec<Term>>,
    /// Tables of names, for conditions.
    names: Preamble,
    /// Bytes of all records so far; rises faster than serial numbers do.
    bytes: u64,
}

struct Watched {
    number: u16,
    trigger: Trigger,
    state: State,
}

/// An event of a pattern.
struct Term {
    /// Which of the patterns.
    at: usize,
    role: Role,
    key: Vec<From>,
    condition: Option<Condition>,
}

struct Condition {
    filter: Filter,
    decoder: Decoder,
    processes: Processes,
}

impl<S: Ord> Matcher<S> {
    /// `triggers`: with their numbers.
    ///
    /// # Errors
    ///
    /// What is wrong with a condition, or with a key.
    pub fn new<'t>(
        triggers: impl IntoIterator<Item = (u16, &'t Trigger)>,
        preamble: &Preamble,
        limits: Limits,
    ) -> Result<Matcher<S>, FilterError> {
        let watched = triggers.into_iter().map(|(number, trigger)| {
            let is_run = |action: &Action| matches!(action, Action::Run(_));
            let (pattern, keeps) = (&trigger.pattern, trigger.actions.iter().any(is_run));
            let about = pattern.steps().first().and_then(|s| event_of(&preamble.events, s));
            let (start_ns, id) = (preamble.clock.start_ns, about.map_or(0, |e| e.id));
            let state = State::new(pattern, keeps, limits, start_ns, id);
            Watched { number, trigger: trigger.clone(), state }
        });
        let names = Preamble { events: Vec::new(), ..preamble.clone() };
        let mut matcher = Matcher {
            merge: LiveMerge::new(&preamble.events),
            watched: watched.collect(),
            terms: Vec::new(),
            names,
            bytes: 0,
        };
        matcher.bind(|step| event_of(&preamble.events, step).into_iter().collect())?;
        Ok(matcher)
    }

    /// Looks up the events of the patterns. `find`: those of a step that are new.
    fn bind<'e>(
        &mut self,
        find: impl Fn(&Step) -> Vec<&'e EventLayout>,
    ) -> Result<(), FilterError> {
        let mut result = Ok(());
        for (at, watched) in self.watched.iter().enumerate() {
            for (role, step, key) in roles(&watched.trigger.pattern) {
                for layout in find(step) {
                    match term(at, role, step, key, layout, &self.names) {
                        Ok(term) => add(&mut self.terms, layout.id, term),
                        Err(e) => result = result.and(Err(e)),
                    }
                }
            }
        }
        result
    }

    /// Learns events that the preamble does not have. Those that have not what a pattern needs are
    /// not looked at.
    pub fn add(&mut self, addition: &Addition) {
        self.merge.add(&addition.events);
        self.names.decodings.extend(addition.decodings.iter().cloned());
        let named = |step: &Step| {
            let is = |e: &&EventLayout| e.name.eq_ignore_ascii_case(&step.event);
            addition.events.iter().filter(is).collect()
        };
        let _ = self.bind(named);
    }

    /// Whether some pattern is about this event.
    #[inline]
    pub fn wants(&self, id: u16) -> bool {
        self.terms.get(usize::from(id)).is_some_and(|terms| !terms.is_empty())
    }

    /// Takes in records; those that are not wanted may have been left out.
    pub fn block(&mut self, origin: Origin, time_base: u64, records: &[u8]) {
        // Events of one hit have one time, and stay in their order, also across blocks.
        self.merge.block(origin, time_base, self.bytes, records, &mut |_| {});
        self.bytes += records.len() as u64;
    }

    /// A source has handed over all its events before this time.
    pub fn until(&mut self, source: S, time_ns: u64) {
        self.merge.until(source, time_ns);
    }

    /// Looks at the events up to the time that all sources have reached. Returns this time: no hit
    /// before it comes later.
    pub fn release(&mut self, now_ns: u64, found: &mut dyn FnMut(Found)) -> u64 {
        let reached = self.merge.reached(now_ns).min(now_ns.saturating_sub(MARGIN_NS));
        self.pass(reached, found);
        reached
    }

    /// Looks at all events: no more will come. Silences end at this time.
    pub fn finish(&mut self, end_ns: u64, found: &mut dyn FnMut(Found)) {
        self.pass(u64::MAX, &mut |hit| {
            if hit.time_ns <= end_ns {
                found(hit);
            }
        });
    }

    fn pass(&mut self, until: u64, found: &mut dyn FnMut(Found)) {
        let Matcher { merge, watched, terms, .. } = self;
        merge.pass_on(until, &mut |event, _| {
            watched.iter_mut().for_each(|w| w.expire(event.time_ns, found));
            for term in terms.get(usize::from(event.layout.id)).into_iter().flatten() {
                if let Some(key) = term.matches(event)
                    && let Some(watched) = watched.get_mut(term.at)
                {
                    watched.see(term.role, key, event, found);
                }
            }
        });
        watched.iter_mut().for_each(|w| w.expire(until, found));
    }

    /// The numbers of triggers of which something was forgotten, because it was too much, and how
    /// many events or keys these were.
    pub fn forgotten(&self) -> Vec<(u16, u64)> {
        let all = self.watched.iter().map(|w| (w.number, w.state.forgotten));
        all.filter(|(_, count)| *count > 0).collect()
    }
}

impl Watched {
    fn expire(&mut self, before_ns: u64, found: &mut dyn FnMut(Found)) {
        let trigger = self.number;
        self.state.expire(before_ns, &mut |time, stash| found(hit(trigger, time, stash)));
    }

    fn see(&mut self, role: Role, key: Key, event: &EventRef, found: &mut dyn FnMut(Found)) {
        let trigger = self.number;
        let fire = &mut |time, stash: &Stash| found(hit(trigger, time, stash));
        self.state.see(role, key, event, fire);
    }
}

fn hit(trigger: u16, time_ns: u64, stash: &Stash) -> Found<'_> {
    let Stash { id, origin, bytes } = stash;
    Found { trigger, time_ns, id: *id, origin: *origin, bytes }
}

impl Term {
    /// The key of an event, if it is one of the pattern.
    fn matches(&self, event: &EventRef) -> Option<Key> {
        if let Some(Condition { filter, decoder, processes }) = &self.condition {
            // The only layout that they know.
            let event = EventRef { index: 0, ..*event };
            if !filter.matches(&event, decoder, processes) {
                return None;
            }
        }
        Key::of(&self.key, event)
    }
}

/// The first of this name, whatever its case.
fn event_of<'e>(events: &'e [EventLayout], step: &Step) -> Option<&'e EventLayout> {
    events.iter().find(|e| e.name.eq_ignore_ascii_case(&step.event))
}

/// The events of a pattern, with the names of their keys.
fn roles(pattern: &Pattern) -> Vec<(Role, &Step, Option<&str>)> {
    match pattern {
        Pattern::Event(step) => vec![(Role::First, step, None)],
        Pattern::Silence { of, by, .. } => vec![(Role::First, of, by.as_deref())],
        Pattern::Sequence { first, then: second, by, .. }
        | Pattern::Unanswered { first, missing: second, by, .. } => vec![
            (Role::First, first, by.as_ref().map(|key| key.first.as_str())),
            (Role::Second, second, by.as_ref().map(|key| key.then.as_str())),
        ],
    }
}

fn term(
    at: usize,
    role: Role,
    step: &Step,
    key: Option<&str>,
    layout: &EventLayout,
    names: &Preamble,
) -> Result<Term, FilterError> {
    let alone = Preamble { events: vec![layout.clone()], ..names.clone() };
    let condition = |text: &String| {
        Ok(Condition {
            filter: Filter::new(text, &alone, alone.clock.start_ns)?,
            decoder: Decoder::live(&alone, Symbols::default()),
            processes: Processes::live(&alone),
        })
    };
    Ok(Term {
        at,
        role,
        key: key.map(|name| field(layout, name)).transpose()?.into_iter().collect(),
        condition: step.condition.as_ref().map(condition).transpose()?,
    })
}

fn add(terms: &mut Vec<Vec<Term>>, id: u16, term: Term) {
    let id = usize::from(id);
    if terms.len() <= id {
        terms.resize_with(id + 1, Vec::new);
    }
    terms[id].push(term);
    terms[id].sort_by_key(|term| (term.at, term.role));
}

/// Checks whether the key of a pattern is in these events, the first and the second.
///
/// # Errors
///
/// If it is not, or if one is a number and the other a text.
pub fn check_key(
    key: &super::Key,
    first: &EventLayout,
    then: &EventLayout,
) -> Result<(), FilterError> {
    let is_text = |layout: &EventLayout, name: &str| {
        let found = layout.fields.iter().find(|f| f.name == name);
        found.is_some_and(|f| {
            use klogger_schema::model::Shape;
            matches!(f.shape, Shape::Text(_) | Shape::Tail(_))
        })
    };
    field(first, &key.first)?;
    field(then, &key.then)?;
    if is_text(first, &key.first) == is_text(then, &key.then) {
        return Ok(());
    }
    Err(FilterError {
        message: format!(
            "'{}' of {} and '{}' of {} are a number and a text",
            key.first, first.name, key.then, then.name
        ),
        help: "name fields of one kind: by FIELD = FIELD".into(),
    })
}
