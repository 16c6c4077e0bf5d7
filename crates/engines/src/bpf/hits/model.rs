// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Copies of a program against a model of their hits: the steps of runtime/bpf/copies.h, one by
//! one, by threads that can be preempted between any two of them, on two CPUs. The table of marks
//! is small, so that hits collide.

use proptest::prelude::*;

const THREADS: usize = 5;
const CPUS: usize = 2;
const COPIES: usize = 6;
const USELESS: u64 = u64::MAX;

/// What a thread does next.
#[derive(Clone, Copy, Debug, PartialEq)]
enum At {
    /// Calls this copy. A hit calls as many copies as were attached when it began.
    Call(usize),
    /// In a copy: reads the mark.
    Look(usize),
    /// Found this mark, and replaces it by compare-and-swap.
    Exchange(usize, u64),
    /// Has logged the hit, and leaves a mark.
    Mark(usize),
    Put(usize, u64),
    Leave(usize),
    Idle,
}

#[derive(Clone)]
struct Thread {
    at: At,
    cpu: usize,
    /// Programs that this hit calls.
    attached: usize,
    logged: u32,
}

struct Model {
    threads: Vec<Thread>,
    /// Which copies are active on which CPU, as the kernel sees it.
    active: [[bool; COPIES]; CPUS],
    marks: Vec<u64>,
    copies: usize,
    attached: usize,
    hits: u64,
    logged: u64,
    skipped: u64,
    caught: u64,
}

impl Model {
    fn new(places: usize) -> Model {
        let thread = Thread { at: At::Idle, cpu: 0, attached: 1, logged: 0 };
        Model {
            threads: vec![thread; THREADS],
            active: [[false; COPIES]; CPUS],
            marks: vec![0; places],
            copies: 1,
            attached: 1,
            hits: 0,
            logged: 0,
            skipped: 0,
            caught: 0,
        }
    }

    fn name(t: usize) -> u64 {
        (t as u64 + 1) << 3
    }

    fn place(&self, t: usize) -> usize {
        t % self.marks.len()
    }

    fn exchange(&mut self, t: usize, found: u64, new: u64) -> bool {
        let place = self.place(t);
        let same = self.marks[place] == found;
        if same {
            self.marks[place] = new;
        }
        same
    }

    /// `cpu`: where the thread continues, if it may migrate.
    fn step(&mut self, t: usize, cpu: usize) {
        let found = self.marks[self.place(t)];
        let (name, next) = (Model::name(t), found & 7);
        self.threads[t].at = match self.threads[t].at {
            At::Idle => {
                self.hits += 1;
                (self.threads[t].attached, self.threads[t].logged) = (self.attached, 0);
                At::Call(0)
            }
            At::Call(copy) if copy == self.threads[t].attached => At::Idle,
            At::Call(copy) => {
                self.threads[t].cpu = cpu;
                if std::mem::replace(&mut self.active[cpu][copy], true) {
                    self.skipped += u64::from(copy == 0);
                    At::Call(copy + 1)
                } else if copy == 0 {
                    self.log(t, copy)
                } else {
                    At::Look(copy)
                }
            }
            At::Look(copy) if found == 0 || (found - next == name && next > copy as u64) => {
                self.log(t, copy)
            }
            At::Look(copy) if found == USELESS || found - next != name => At::Leave(copy),
            At::Look(copy) => At::Exchange(copy, found),
            At::Exchange(copy, found) => {
                let last = copy + 1 >= self.copies;
                self.exchange(t, found, if last { 0 } else { name + copy as u64 + 1 });
                At::Leave(copy)
            }
            At::Mark(copy) if found == USELESS => At::Leave(copy),
            At::Mark(copy) => At::Put(copy, found),
            At::Put(copy, found) => {
                let mine = found == 0 || found - (found & 7) == name;
                let new = if mine { name + copy as u64 + 1 } else { USELESS };
                if self.exchange(t, found, new) { At::Leave(copy) } else { At::Mark(copy) }
            }
            At::Leave(copy) => {
                self.active[self.threads[t].cpu][copy] = false;
                At::Call(copy + 1)
            }
        };
    }

    fn log(&mut self, t: usize, copy: usize) -> At {
        self.threads[t].logged += 1;
        assert!(self.threads[t].logged == 1, "a hit is logged twice");
        self.logged += 1;
        self.caught += u64::from(copy > 0);
        if self.copies > copy + 1 { At::Mark(copy) } else { At::Leave(copy) }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
    #[test]
    fn no_hit_is_logged_twice_and_all_others_are_counted(
        places in 1usize..8,
        steps in proptest::collection::vec((0..THREADS, 0..CPUS, 0..60u8), 0..600),
    ) {
        let mut model = Model::new(places);
        for (t, cpu, other) in steps {
            match other {
                // The recorder raises the number first, and attaches the copy later.
                0 if model.copies == model.attached && model.copies < COPIES => model.copies += 1,
                1 => model.attached = model.copies,
                _ => model.step(t, cpu),
            }
        }
        for t in 0..THREADS {
            while model.threads[t].at != At::Idle {
                model.step(t, 0);
            }
        }
        prop_assert_eq!(model.hits - model.logged, model.skipped - model.caught);
    }
}

/// With a copy for each thread and enough marks, only those hits are lost that began before the
/// copy was attached.
#[test]
fn with_a_copy_for_each_thread_nothing_is_lost() {
    let mut model = Model::new(THREADS);
    (model.copies, model.attached) = (THREADS, THREADS);
    // All threads but one are preempted inside a copy; the last one hits the probe many times.
    for t in 0..THREADS - 1 {
        while !matches!(model.threads[t].at, At::Leave(_)) {
            model.step(t, 0);
        }
    }
    let last = THREADS - 1;
    for _ in 0..100 {
        model.step(last, 0);
        while model.threads[last].at != At::Idle {
            model.step(last, 0);
        }
    }
    assert_eq!((model.hits, model.logged), (THREADS as u64 - 1 + 100, THREADS as u64 - 1 + 100));
}
