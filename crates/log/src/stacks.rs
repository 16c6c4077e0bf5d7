// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Stacks, by the numbers that events have: those of the kernel, and those of programs.

use crate::code::{Code, Function, Place, UserStack, base};
use std::collections::BTreeMap;

/// The largest number of frames; a longer line is invalid.
const FRAMES_MAX: usize = 256;

/// Where a thread of a program begins, or a signal handler returns to; `*`: and so on. A stack that
/// ends elsewhere was not followed to its end.
const BEGINNINGS: [&str; 13] = [
    "_start",
    "__libc_start*",
    "libc_start_main_stage2",
    "start_thread",
    "clone",
    "__clone",
    "clone3",
    "__clone3",
    "_dl_start*",
    "__restore_rt",
    "runtime.goexit*",
    "runtime.rt0_go*",
    "runtime.mstart*",
];
/// Libraries with functions that begin threads, but that may have no names.
const LIBRARIES: [&str; 4] = ["libc.so", "libc-", "libpthread", "ld-"];

/// The stacks of a log. If a number occurs twice, its first line counts.
#[derive(Clone, Debug, Default)]
pub struct Stacks(BTreeMap<u64, Frames>);

/// Where the code of a stack is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Side {
    #[default]
    Kernel,
    User,
}

/// One stack, from the innermost frame on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frames {
    pub side: Side,
    pub frames: Vec<Frame>,
    pub end: End,
}

/// How the outermost frame was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// Its thread began there, as far as is known.
    #[default]
    Whole,
    /// There were more frames than are kept.
    Deep,
    /// Its caller could not be found: there is code without frame pointers.
    Lost,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// The function, or without a name the address or the place in the file.
    pub function: Vec<u8>,
    pub offset: Option<u64>,
    /// It was inlined into the next one.
    pub inlined: bool,
    /// Its caller is missing; the next frame is that of the caller's caller.
    pub gap: bool,
    /// The path of its file; empty in the kernel, and if it is unknown.
    pub file: String,
    /// `FILE:LINE` of the source; empty if it is unknown.
    pub source: String,
}

impl Stacks {
    /// Reads lines `NUMBER FRAME FRAME ...` of kernel stacks; a line of another form is skipped.
    pub fn new(text: &[u8]) -> Stacks {
        let mut stacks = BTreeMap::new();
        for line in text.split(|b| *b == b'\n') {
            let Some(space) = line.iter().position(|b| *b == b' ') else { continue };
            let number = std::str::from_utf8(&line[..space]).ok().and_then(|n| n.parse().ok());
            let words = line[space + 1..].split(|b| *b == b' ');
            let frames: Vec<Frame> = words.filter(|w| !w.is_empty()).map(of_kernel).collect();
            if let Some(number) = number
                && frames.len() <= FRAMES_MAX
            {
                stacks.entry(number).or_insert(Frames { frames, ..Frames::default() });
            }
        }
        Stacks(stacks)
    }

    /// Adds those that others have besides.
    pub fn and(mut self, others: Stacks) -> Stacks {
        for (number, frames) in others.0 {
            self.0.entry(number).or_insert(frames);
        }
        self
    }

    /// Adds user stacks.
    pub fn with(mut self, code: &Code) -> Stacks {
        for stack in &code.stacks {
            self.0.entry(stack.number).or_insert_with(|| of_program(stack, code));
        }
        self
    }

    pub fn find(&self, number: u64) -> Option<&Frames> {
        self.0.get(&number)
    }

    /// In ascending order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Frames)> {
        self.0.iter().map(|(number, frames)| (*number, frames))
    }
}

/// `FUNCTION+0xOFFSET`, or an address.
fn of_kernel(word: &[u8]) -> Frame {
    let plus = word.iter().rposition(|b| *b == b'+');
    let offset = plus.and_then(|plus| {
        let digits = std::str::from_utf8(&word[plus + 1..]).ok()?.strip_prefix("0x")?;
        u64::from_str_radix(digits, 16).ok()
    });
    let function = match (plus, offset) {
        (Some(plus), Some(_)) => word[..plus].to_vec(),
        _ => word.to_vec(),
    };
    Frame { function, offset, ..Frame::default() }
}

fn of_program(stack: &UserStack, code: &Code) -> Frames {
    let mut frames = Vec::new();
    for (n, place) in stack.frames.iter().enumerate().take(FRAMES_MAX) {
        // What is shown is the return address, as in the kernel.
        let after = u64::from(n > 0);
        let gap = stack.gaps.as_ref().is_some_and(|gaps| gaps.contains(&n));
        match place {
            Place::Address(address) => frames.push(Frame {
                function: format!("{:x}", address.wrapping_add(after)).into_bytes(),
                ..Frame::default()
            }),
            Place::File(file, offset) => {
                let path = code.files.get(*file as usize).map_or("", |f| f.path.as_str());
                match code.names.get(&(*file, *offset)).filter(|names| !names.is_empty()) {
                    Some(functions) => push_named(&mut frames, functions, path, after),
                    None => frames.push(Frame {
                        function: base(path).as_bytes().to_vec(),
                        offset: Some(offset.wrapping_add(after)),
                        file: path.into(),
                        ..Frame::default()
                    }),
                }
            }
        }
        if let Some(frame) = frames.last_mut() {
            frame.gap = gap;
        }
    }
    let end = match frames.last() {
        _ if stack.cut => End::Deep,
        Some(last) if stack.is_whole || begins(last) => End::Whole,
        // Without tables it is not known whether it was called itself.
        Some(last) if in_library(last) && !last.gap => End::Whole,
        Some(_) => End::Lost,
        None => End::Whole,
    };
    Frames { side: Side::User, frames, end }
}

/// A function, after those that were inlined into it.
fn push_named(frames: &mut Vec<Frame>, functions: &[Function], path: &str, after: u64) {
    for (n, function) in functions.iter().enumerate().rev() {
        frames.push(Frame {
            function: function.name.clone().into_bytes(),
            offset: (n == 0).then(|| function.offset.wrapping_add(after)),
            inlined: n > 0,
            gap: false,
            file: path.into(),
            source: function.source.clone(),
        });
    }
}

fn begins(frame: &Frame) -> bool {
    let named = |name: &&str| match name.strip_suffix('*') {
        Some(begin) => frame.function.starts_with(begin.as_bytes()),
        None => frame.function == name.as_bytes(),
    };
    BEGINNINGS.iter().any(named)
}

fn in_library(frame: &Frame) -> bool {
    LIBRARIES.iter().any(|library| base(&frame.file).starts_with(library))
}

impl Frames {
    /// The functions without offsets.
    pub fn functions(&self) -> impl Iterator<Item = &[u8]> {
        self.frames.iter().map(|f| f.function.as_slice())
    }

    /// Whether no frame is missing, as far as is known.
    pub fn is_whole(&self) -> bool {
        let (_, before) = self.frames.split_last().unzip();
        self.end == End::Whole && !before.unwrap_or_default().iter().any(|frame| frame.gap)
    }

    /// Appends the frames, `<` between them: each was called by the next. `?` is in the place of a
    /// frame that is missing; at the end is `...` if there were more.
    pub fn push_text(&self, out: &mut Vec<u8>) {
        for (i, frame) in self.frames.iter().enumerate() {
            if i > 0 {
                out.extend_from_slice(if self.frames[i - 1].gap { b"<?<" } else { b"<" });
            }
            out.extend_from_slice(&frame.function);
            if let Some(offset) = frame.offset {
                out.extend_from_slice(format!("+{offset:#x}").as_bytes());
            }
            if frame.inlined {
                out.extend_from_slice(b"(inlined)");
            }
        }
        out.extend_from_slice(match self.end {
            End::Whole => b"",
            End::Deep => b"<...",
            End::Lost => b"<?",
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(frames: &Frames) -> String {
        let mut text = Vec::new();
        frames.push_text(&mut text);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_line_is_a_stack() {
        let stacks = Stacks::new(
            b"7 inner+0x1f outer+0x2 ffffffff81000000\nnonsense\n7 again+0x1\n3 lone+0x0\n",
        );
        let numbers: Vec<u64> = stacks.iter().map(|s| s.0).collect();
        assert_eq!(numbers, [3, 7]);
        let frames = stacks.find(7).unwrap();
        let functions: Vec<&[u8]> = frames.functions().collect();
        assert_eq!(functions, [&b"inner"[..], b"outer", b"ffffffff81000000"]);
        assert_eq!(text(frames), "inner+0x1f<outer+0x2<ffffffff81000000");
        assert!(stacks.find(8).is_none());
    }

    #[test]
    fn user_stacks_say_how_they_end() {
        let code = Code::new(
            b"f 0 ab - /usr/bin/prog\nf 1 - - /lib/libc.so.6\n\
              s 65537 9 - 0+10 0+20 1+30\ng 65537 1\ns 65538 9 - 0+10 7f00\ns 65539 9 cut 0+20\n\
              s 65540 9 end 0+10 1+30\ng 65540 1\ns 65543 9 - 0+10 1+30\ng 65543 1\n\
              s 65541 9 - 1+30\ng 65541 0\ns 65542 9 end 0+10 0+40\ng 65542\n\
              s 65544 9 - 0+10 0+50\ng 65544\ns 65545 9 - 0+10 0+60\ng 65545 1\n\
              n 0+50 4\tclone_list\t\nn 0+60 5\truntime.goexit.abi0\t\n\
              n 0+20 f\touter\t/src/p.c:3\tmiddle\t/src/p.c:9\n",
        );
        let stacks = Stacks::new(b"").with(&code);
        let shown = |n| text(stacks.find(n).unwrap());
        assert_eq!(shown(65537), "prog+0x10<middle(inlined)<outer+0x10<?<libc.so.6+0x31");
        let incomplete = stacks.find(65537).unwrap();
        assert!(incomplete.end == End::Whole && !incomplete.is_whole());
        assert_eq!(shown(65538), "prog+0x10<7f01<?");
        assert_eq!(shown(65539), "middle(inlined)<outer+0xf<...");
        // It is the beginning, though its name is not known; and it is not, as where qsort() calls.
        assert_eq!(shown(65540), "prog+0x10<libc.so.6+0x31");
        assert_eq!(shown(65543), "prog+0x10<libc.so.6+0x31<?");
        assert_eq!(shown(65544), "prog+0x10<clone_list+0x5<?");
        assert_eq!(shown(65545), "prog+0x10<runtime.goexit.abi0+0x6");
        // The tables tell that something called libc's function; and that nothing did.
        assert_eq!(shown(65541), "libc.so.6+0x30<?");
        assert_eq!(shown(65542), "prog+0x10<prog+0x41");
        let frames = &stacks.find(65537).unwrap().frames;
        assert_eq!(frames[1].source, "/src/p.c:9");
        assert_eq!(frames[2].file, "/usr/bin/prog");
    }
}
