// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Where the bytes of a log go: a file, or memory.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};

/// The destination of a log. A failed write can be undone.
pub trait Sink: Write {
    /// Removes everything after the first `length` bytes.
    fn cut(&mut self, length: u64) -> io::Result<()>;
}

impl Sink for File {
    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)?;
        self.seek(SeekFrom::Start(length)).map(|_| ())
    }
}

impl Sink for Vec<u8> {
    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.truncate(length as usize);
        Ok(())
    }
}

impl<S: Sink + ?Sized> Sink for &mut S {
    fn cut(&mut self, length: u64) -> io::Result<()> {
        (**self).cut(length)
    }
}

impl<S: Sink + ?Sized> Sink for Box<S> {
    fn cut(&mut self, length: u64) -> io::Result<()> {
        (**self).cut(length)
    }
}
