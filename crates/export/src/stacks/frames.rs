// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Stacks as flame graphs have them: the outermost frame first, those of the program before those
//! of the kernel, and a frame in the place of each that is missing.

use klogger_log::stacks::{End, Frame, Side, Stacks};
use std::collections::HashMap;

/// In the place of frames whose caller could not be found.
pub const UNKNOWN: &str = "[unknown]";
/// In the place of frames beyond the number that is kept.
pub const CUT: &str = "[not kept]";
/// The event has the number of a stack that the log does not have.
pub const MISSING: &str = "[stack not in the log]";
/// The event has no stack.
pub const NONE: &str = "[no stack]";

/// Whose code a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Of {
    Kernel,
    User,
    /// It stands for frames that are missing.
    Nothing,
}

/// A function as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shown {
    pub name: String,
    pub of: Of,
    /// It was inlined into the frame before it.
    pub inlined: bool,
    /// The path of its file; empty in the kernel, and if it is unknown.
    pub file: String,
    /// `FILE:LINE` of the source; empty if it is unknown.
    pub source: String,
}

impl Shown {
    /// As in folded stacks: frames of the kernel end in `_[k]`, inlined ones in `_[i]`.
    pub fn text(&self) -> String {
        let mark = match self.of {
            Of::Kernel => "_[k]",
            Of::User if self.inlined => "_[i]",
            Of::User | Of::Nothing => "",
        };
        plain(&self.name) + mark
    }
}

/// Without what separates frames and lines.
pub fn plain(name: &str) -> String {
    name.chars()
        .map(|c| {
            if c == ';' {
                ':'
            } else if c.is_control() {
                ' '
            } else {
                c
            }
        })
        .collect()
}

/// Numbers that an event has in its fields `as stack`; 0 is none.
pub type Numbers = [u64; 2];

/// The different frames of a log, and the different stacks of its events.
#[derive(Default)]
pub struct Paths {
    pub frames: Vec<Shown>,
    /// The frames of each stack, the outermost first: indexes into `frames`.
    pub paths: Vec<Vec<u32>>,
    /// Of each stack: whether frames are missing.
    pub partial: Vec<bool>,
    by_frame: HashMap<Shown, u32>,
    by_numbers: HashMap<Numbers, u32>,
}

impl Paths {
    /// The index of a stack in `paths`.
    pub fn of(&mut self, numbers: Numbers, stacks: &Stacks) -> u32 {
        if let Some(known) = self.by_numbers.get(&numbers) {
            return *known;
        }
        let path = path(numbers, stacks);
        let index = self.paths.len() as u32;
        self.partial.push(path.iter().any(|frame| frame.of == Of::Nothing));
        let path = path.into_iter().map(|frame| self.frame(frame)).collect();
        self.paths.push(path);
        self.by_numbers.insert(numbers, index);
        index
    }

    fn frame(&mut self, frame: Shown) -> u32 {
        if let Some(known) = self.by_frame.get(&frame) {
            return *known;
        }
        let index = self.frames.len() as u32;
        self.frames.push(frame.clone());
        self.by_frame.insert(frame, index);
        index
    }
}

/// The frames of an event with these stacks.
pub fn path(numbers: Numbers, stacks: &Stacks) -> Vec<Shown> {
    let (mut user, mut kernel) = (Vec::new(), Vec::new());
    for number in numbers.into_iter().filter(|n| *n != 0) {
        match stacks.find(number) {
            Some(found) if found.side == Side::Kernel => {
                push(found.end, &found.frames, Of::Kernel, &mut kernel);
            }
            Some(found) => push(found.end, &found.frames, Of::User, &mut user),
            None => user.push(missing(MISSING)),
        }
    }
    user.extend(kernel);
    if user.is_empty() {
        user.push(missing(NONE));
    }
    user
}

fn push(end: End, frames: &[Frame], of: Of, out: &mut Vec<Shown>) {
    match end {
        End::Whole => {}
        End::Deep => out.push(missing(CUT)),
        End::Lost => out.push(missing(UNKNOWN)),
    }
    let last = frames.len().saturating_sub(1);
    for (n, frame) in frames.iter().enumerate().rev() {
        // At the end it is known already.
        if frame.gap && n < last {
            out.push(missing(UNKNOWN));
        }
        out.push(Shown {
            name: name(frame),
            of,
            inlined: frame.inlined,
            file: frame.file.clone(),
            source: frame.source.clone(),
        });
    }
}

/// The function; without one, the place in its file, which is all that is known of it.
fn name(frame: &Frame) -> String {
    let function = String::from_utf8_lossy(&frame.function);
    let is_file = !frame.file.is_empty() && frame.file.ends_with(&*function);
    match frame.offset.filter(|_| is_file) {
        Some(offset) => format!("{function}+{offset:#x}"),
        None => function.into_owned(),
    }
}

fn missing(name: &str) -> Shown {
    Shown {
        name: name.into(),
        of: Of::Nothing,
        inlined: false,
        file: String::new(),
        source: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use klogger_log::code::Code;

    fn names(numbers: Numbers) -> Vec<String> {
        let code = Code::new(
            b"f 0 ab - /usr/bin/prog\nf 1 - - /lib/libc.so.6\n\
              s 65537 9 - 0+10 0+20 1+30\ng 65537 1\ns 65538 9 - 0+10 7f00\ns 65539 9 cut 0+20\n\
              n 0+20 f\touter\t/src/p.c:3\tmiddle\t/src/p.c:9\n",
        );
        let stacks = Stacks::new(b"7 inner+0x1f outer+0x2\n").with(&code);
        path(numbers, &stacks).into_iter().map(|f| f.name).collect()
    }

    #[test]
    fn the_program_comes_first_then_the_kernel() {
        let whole = ["libc.so.6+0x31", UNKNOWN, "outer", "middle", "prog+0x10", "outer", "inner"];
        assert_eq!(names([7, 65537]), whole);
        assert_eq!(names([65537, 7]), whole);
        assert_eq!(names([7, 0]), ["outer", "inner"]);
    }

    #[test]
    fn what_is_missing_has_a_frame() {
        assert_eq!(names([65538, 0]), [UNKNOWN, "7f01", "prog+0x10"]);
        assert_eq!(names([0, 65539]), [CUT, "outer", "middle"]);
        assert_eq!(names([99, 7]), [MISSING, "outer", "inner"]);
        assert_eq!(names([0, 0]), [NONE]);
    }

    #[test]
    fn separators_in_names_are_replaced() {
        assert_eq!(plain("a;b\nc d<[x; 3]>"), "a:b c d<[x: 3]>");
    }

    #[test]
    fn equal_stacks_are_one() {
        let stacks = Stacks::new(b"7 inner+0x1f outer+0x2\n8 inner+0x20 outer+0x2\n");
        let mut paths = Paths::default();
        assert_eq!((paths.of([7, 0], &stacks), paths.of([8, 0], &stacks)), (0, 1));
        assert_eq!(paths.of([7, 0], &stacks), 0);
        assert_eq!((paths.frames.len(), &paths.paths[1]), (2, &vec![0, 1]));
    }
}
