// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Where the lines of a trace go. A thread of its own writes them, so that a slow terminal holds up
//! nothing but itself: the text that waits for it is bounded.

use klogger_os::Error;
use klogger_os::threads;
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
    /// Taken at the end.
    running: Mutex<Option<Running>>,
    shared: Arc<Shared>,
}

struct Running {
    to: Sender<Vec<u8>>,
    thread: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    waiting: AtomicUsize,
    failure: Mutex<Option<io::Error>>,
}

impl Sink {
    pub fn new(out: Box<dyn Write + Send>) -> Result<Sink, Error> {
        let (to, chunks) = channel();
        let shared: Arc<Shared> = Arc::default();
        let their = shared.clone();
        let thread = threads::start("klogger/lines", move || write_all(out, &chunks, &their))?;
        Ok(Sink { running: Mutex::new(Some(Running { to, thread })), shared })
    }

    /// Whether more text may be pushed.
    pub fn has_room(&self) -> bool {
        self.shared.waiting.load(Ordering::Relaxed) < WAITING_MAX
    }

    /// Writes whole lines. They are dropped if an earlier write has failed.
    pub fn push(&self, text: Vec<u8>) {
        if text.is_empty() {
            return;
        }
        if let Ok(Some(running)) = self.running.lock().as_deref() {
            self.shared.waiting.fetch_add(text.len(), Ordering::Relaxed);
            // Fails only if the thread has ended with an error, which `failure` has.
            let _ = running.to.send(text);
        }
    }

    /// Why writing has failed, once.
    pub fn failure(&self) -> io::Result<()> {
        let found = self.shared.failure.lock().ok().and_then(|mut failure| failure.take());
        found.map_or(Ok(()), Err)
    }

    /// Waits until everything has been written.
    pub fn finish(&self) -> io::Result<()> {
        let running = self.running.lock().ok().and_then(|mut running| running.take());
        if let Some(Running { to, thread }) = running {
            drop(to);
            let _ = thread.join();
        }
        self.failure()
    }
}

fn write_all(mut out: Box<dyn Write + Send>, chunks: &Receiver<Vec<u8>>, shared: &Shared) {
    for text in chunks {
        if let Err(e) = write_chunk(&mut *out, &text) {
            if let Ok(mut failure) = shared.failure.lock() {
                failure.get_or_insert(e);
            }
            return;
        }
        shared.waiting.fetch_sub(text.len(), Ordering::Relaxed);
    }
}

/// A terminal may be non-blocking, because of another program that uses it.
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
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// Takes a chunk each time that it is told to, and passes it on.
    struct Slow {
        go: Receiver<()>,
        seen: Sender<Vec<u8>>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.go.recv().map_err(|_| io::Error::from(ErrorKind::BrokenPipe))?;
            let _ = self.seen.send(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_slow_reader_fills_the_room_and_gets_everything() {
        let ((go, wait), (seen, hear)) = (channel(), channel());
        let sink = Sink::new(Box::new(Slow { go: wait, seen })).unwrap();
        let chunk = vec![b'x'; WAITING_MAX / 2];
        for _ in 0..2 {
            assert!(sink.has_room());
            sink.push(chunk.clone());
        }
        assert!(!sink.has_room());
        go.send(()).unwrap();
        go.send(()).unwrap();
        sink.finish().unwrap();
        assert_eq!(hear.iter().map(|text| text.len()).sum::<usize>(), WAITING_MAX);
    }

    #[test]
    fn a_reader_that_is_gone() {
        let (go, wait) = channel();
        let sink = Sink::new(Box::new(Slow { go: wait, seen: channel().0 })).unwrap();
        drop(go);
        sink.push(b"a line\n".to_vec());
        assert_eq!(sink.finish().unwrap_err().kind(), ErrorKind::BrokenPipe);
        sink.push(b"too late\n".to_vec());
    }
}
