// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Where the lines of a trace go. A thread of its own writes them, so that a slow terminal holds up
//! nothing but itself: the text that waits for it is bounded.

use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Bytes of text that wait at most. Further lines are counted instead of kept.
const WAITING_MAX: usize = 64 << 20;
/// How long to wait for a terminal that takes no more at the moment.
const SHORT: Duration = Duration::from_millis(5);

/// Whatever the lines are written to.
pub struct Sink {
    /// Dropped at the end.
    to: Option<Sender<Vec<u8>>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    waiting: AtomicUsize,
    failure: Mutex<Option<io::Error>>,
}

impl Sink {
    pub fn new(out: Box<dyn Write + Send>) -> Sink {
        let (to, chunks) = channel();
        let shared: Arc<Shared> = Arc::default();
        let their = shared.clone();
        let thread = thread::Builder::new().name("klogger/lines".into());
        let thread = thread.spawn(move || write_all(out, &chunks, &their)).ok();
        Sink { to: Some(to), shared, thread }
    }

    /// Whether more text may be pushed.
    pub fn has_room(&self) -> bool {
        self.shared.waiting.load(Ordering::Relaxed) < WAITING_MAX
    }

    /// Writes whole lines. They are dropped if an earlier write has failed.
    pub fn push(&self, text: Vec<u8>) {
        if let Some(to) = self.to.as_ref().filter(|_| !text.is_empty()) {
            self.shared.waiting.fetch_add(text.len(), Ordering::Relaxed);
            // Fails only if the thread has ended with an error, which `failure` has.
            let _ = to.send(text);
        }
    }

    /// Why writing has failed, once.
    pub fn failure(&self) -> io::Result<()> {
        let mut failure = self.shared.failure.lock().map_err(|_| io::Error::other("panicked"))?;
        failure.take().map_or(Ok(()), Err)
    }
}

impl Drop for Sink {
    /// Waits until all is written.
    fn drop(&mut self) {
        self.to = None;
        self.thread.take().into_iter().for_each(|thread| drop(thread.join()));
    }
}

fn write_all(mut out: Box<dyn Write + Send>, chunks: &Receiver<Vec<u8>>, shared: &Shared) {
    for text in chunks {
        if let Err(e) = write_chunk(&mut *out, &text)
            && let Ok(mut failure) = shared.failure.lock()
        {
            failure.get_or_insert(e);
            return;
        }
        shared.waiting.fetch_sub(text.len(), Ordering::Relaxed);
    }
}

/// Standard error may be a terminal that another program has made non-blocking.
fn write_chunk(out: &mut dyn Write, mut text: &[u8]) -> io::Result<()> {
    while !text.is_empty() {
        match out.write(text) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(n) => text = &text[n..],
            Err(e) if e.kind() == ErrorKind::WouldBlock => thread::sleep(SHORT),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
