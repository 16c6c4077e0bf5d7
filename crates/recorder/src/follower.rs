// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Passes the events of a running recording on to whoever follows it, in the order of time.
//!
//! The writer thread copies each block into a queue. A thread of its own merges the blocks
//! ([`LiveMerge`]), and calls the [`Follower`]. So neither the log nor the rings wait for it: if
//! the queue is full, blocks are left out of it and their events are counted.

use klogger_log::event::EventRef;
use klogger_log::live::LiveMerge;
use klogger_log::preamble::{Addition, Preamble};
use klogger_log::writer::EventBlock;
use klogger_os as os;
use klogger_os::Error;
use klogger_os::threads;
use klogger_ring::block::{Source, Status};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Bytes that wait in the queue at most.
const QUEUE_MAX: usize = 64 << 20;
/// How long the thread waits for the next piece.
const WAIT: Duration = Duration::from_millis(100);

/// Whoever follows a recording. All calls come from one thread.
pub trait Follower: Send {
    /// The recording begins.
    fn begin(&mut self, preamble: &Preamble);
    /// Later events may be of these schemata as well.
    fn add(&mut self, addition: &Addition);
    /// An event that has come from its ring. It comes again, in its turn.
    fn arrives(&mut self, event: &EventRef);
    /// The next event, in the order of time. `late`: it is earlier than one before it.
    fn event(&mut self, event: &EventRef, late: bool);
    /// So many events were left out because the follower was too slow. They are in the log.
    fn missed(&mut self, events: u64);
    /// There is nothing more at the moment.
    ///
    /// # Errors
    ///
    /// If the events cannot be passed on any further. It is not called again.
    fn pause(&mut self) -> io::Result<()>;
}

enum Piece {
    Block { block: Copied, records: Vec<u8> },
    Addition(Box<Addition>),
    Until(Source, u64),
}

/// An [`EventBlock`] without its records.
struct Copied {
    origin: klogger_log::origin::Origin,
    time_base: u64,
    first_serial: u64,
}

/// What the writer thread has of the queue. When it is dropped, the thread ends.
pub struct Feed {
    to: Sender<Piece>,
    queue: Arc<Queue>,
}

#[derive(Default)]
struct Queue {
    /// Bytes of the blocks in the queue.
    bytes: AtomicUsize,
    /// Events of blocks for which there was no room.
    missed: AtomicU64,
}

impl Feed {
    /// `events`: how many the block has.
    pub fn block(&self, block: &EventBlock, events: u64) {
        if self.queue.bytes.load(Ordering::Relaxed) > QUEUE_MAX {
            self.queue.missed.fetch_add(events, Ordering::Relaxed);
            return;
        }
        self.queue.bytes.fetch_add(block.records.len(), Ordering::Relaxed);
        let EventBlock { origin, time_base, first_serial, records } = *block;
        let copied = Copied { origin, time_base, first_serial };
        self.send(Piece::Block { block: copied, records: records.to_vec() });
    }

    pub fn add(&self, addition: &Addition) {
        self.send(Piece::Addition(Box::new(addition.clone())));
    }

    pub fn until(&self, source: Source, time_ns: u64) {
        self.send(Piece::Until(source, time_ns));
    }

    /// Fails only if the thread has panicked.
    fn send(&self, piece: Piece) {
        let _ = self.to.send(piece);
    }
}

/// Starts the thread. `cpus`: those whose rings are drained, so that none is forgotten before its
/// drain thread has had its first turn. `status`: where a failure of the follower is noted, if it
/// ends the recording.
pub fn start(
    follower: Box<dyn Follower>,
    preamble: &Preamble,
    cpus: &[u16],
    status: Option<Arc<Status>>,
) -> Result<(Feed, JoinHandle<()>), Error> {
    let (to, pieces) = channel();
    let queue: Arc<Queue> = Arc::default();
    let (shared, preamble) = (queue.clone(), preamble.clone());
    let mut merge = LiveMerge::new(&preamble.events);
    cpus.iter().for_each(|&cpu| merge.until(Source::Cpu(cpu), 0));
    let run = move || {
        let mut worker = Worker { follower, merge, queue: shared, status, failed: false };
        worker.follower.begin(&preamble);
        worker.run(&pieces);
    };
    Ok((Feed { to, queue }, threads::start("klogger/follow", run)?))
}

struct Worker {
    follower: Box<dyn Follower>,
    merge: LiveMerge<Source>,
    queue: Arc<Queue>,
    status: Option<Arc<Status>>,
    failed: bool,
}

impl Worker {
    fn run(&mut self, pieces: &Receiver<Piece>) {
        loop {
            match pieces.recv_timeout(WAIT) {
                Ok(piece) => {
                    self.take(piece);
                    pieces.try_iter().for_each(|piece| self.take(piece));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let Worker { follower, merge, .. } = self;
            merge.release(os::monotonic_ns(), &mut |event, late| follower.event(event, late));
            self.pause();
        }
        let Worker { follower, merge, .. } = self;
        merge.finish(&mut |event, late| follower.event(event, late));
        self.pause();
    }

    fn take(&mut self, piece: Piece) {
        let Worker { follower, merge, queue, .. } = self;
        match piece {
            Piece::Block { block, records } => {
                queue.bytes.fetch_sub(records.len(), Ordering::Relaxed);
                let Copied { origin, time_base, first_serial } = block;
                merge.block(origin, time_base, first_serial, &records, &mut |event| {
                    follower.arrives(event);
                });
            }
            Piece::Addition(addition) => {
                merge.add(&addition.events);
                follower.add(&addition);
            }
            Piece::Until(source, time_ns) => merge.until(source, time_ns),
        }
    }

    fn pause(&mut self) {
        let missed = self.queue.missed.swap(0, Ordering::Relaxed);
        if missed > 0 {
            self.follower.missed(missed);
        }
        if self.failed {
            return;
        }
        if let Err(e) = self.follower.pause() {
            self.failed = true;
            if let Some(Ok(mut failure)) = self.status.as_ref().map(|s| s.failure.lock()) {
                failure.get_or_insert(e);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use klogger_log::origin::Origin;
    use klogger_ring::block::Builtin;
    use klogger_toolchain::bundled;
    use std::sync::Mutex;

    /// The numbers of marks, and whether they were late.
    #[derive(Clone, Default)]
    struct Seen(Arc<Mutex<Vec<(i64, bool)>>>);

    impl Follower for Seen {
        fn begin(&mut self, _: &Preamble) {}
        fn add(&mut self, _: &Addition) {}
        fn arrives(&mut self, _: &EventRef) {}
        fn event(&mut self, event: &EventRef, late: bool) {
            self.0.lock().unwrap().push((event.get("number").unwrap().int().unwrap(), late));
        }
        fn missed(&mut self, _: u64) {}
        fn pause(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_cpu_is_waited_for_before_its_thread_has_had_its_first_turn() {
        let (seen, events) = (Seen::default(), bundled::builtin().unwrap().layouts(1));
        let builtin = Builtin(Arc::new(events.clone()));
        let preamble = Preamble { events, ..Preamble::default() };
        let (feed, thread) = start(Box::new(seen.clone()), &preamble, &[0, 1], None).unwrap();
        // So late that the wait never ends by itself.
        let begin = os::monotonic_ns() + 3_600_000_000_000;
        let block = |cpu, n: i64| {
            let mut records = Vec::new();
            let mark = builtin.event("MARK").int("number", n).text("text", b"");
            mark.finish(begin + n as u64, &mut records);
            let origin = Origin::Cpu(cpu);
            feed.block(
                &EventBlock { origin, time_base: begin, first_serial: 0, records: &records },
                1,
            );
        };
        block(0, 2);
        feed.until(Source::Cpu(0), begin + 10);
        std::thread::sleep(3 * WAIT);
        assert_eq!(*seen.0.lock().unwrap(), []);
        block(1, 1);
        drop(feed);
        thread.join().unwrap();
        assert_eq!(*seen.0.lock().unwrap(), [(1, false), (2, false)]);
    }
}
