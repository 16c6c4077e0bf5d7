// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! User stacks: the code of programs that events were caused by, as lines of a log. `format.rs`
//! describes them.

mod data;
mod join;
mod raw;

pub use self::data::{Data, DataPlace, Datum, Named, Variable, owner};
pub(crate) use self::join::Join;
pub use self::raw::{Raw, Word, WordIs};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// Lines of each kind that are read; a forged log may have more.
const LINES_MAX: usize = 1 << 20;
/// Functions at one place: one, and those that were inlined there.
const INLINED_MAX: usize = 32;
const LOADS_MAX: usize = 16;

/// User stacks, the files that they lead through, and the names of the places in these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Code {
    /// A place names a file by its index.
    pub files: Vec<File>,
    pub stacks: Vec<UserStack>,
    pub names: BTreeMap<(u32, u64), Vec<Function>>,
    pub data: Vec<Datum>,
}

/// A file with code; or what is not a file: `[vdso]`, or `[perf map PID]` for code that a program
/// has made and described, where offsets are addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct File {
    pub path: String,
    /// In hexadecimal; empty if there is none.
    pub build_id: String,
    /// Of each segment with code: its offset in the file, its size, and its address. With these,
    /// debug information in another file can be used.
    pub loads: Vec<(u64, u64, u64)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserStack {
    /// What events have in a field `as stack`.
    pub number: u64,
    /// The process.
    pub pid: u32,
    /// It had more frames than were kept.
    pub cut: bool,
    /// Its thread began in the last frame, as the file says.
    pub is_whole: bool,
    /// The innermost first.
    pub frames: Vec<Place>,
    /// The frames (by index, ascending) whose callers are missing, so that the next frame is that
    /// of a caller's caller. `None`: the file of the innermost frame was not looked at.
    pub gaps: Option<Vec<usize>>,
    /// What the stack was made from, while a file is missing that tells more.
    pub raw: Option<Raw>,
}

/// Where a frame is: the instruction that runs, and in all but the innermost frame the last byte of
/// the call, which is before the return address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The index of a file, and an offset in it.
    File(u32, u64),
    /// An address of the process that belongs to no file.
    Address(u64),
}

/// A function that is at a place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    pub name: String,
    /// How far the place is from its beginning; 0 if it was inlined.
    pub offset: u64,
    /// `FILE:LINE`; empty if it is unknown.
    pub source: String,
}

impl Code {
    /// The lines of a log.
    pub fn lines(&self) -> String {
        let mut text = String::new();
        for (n, file) in self.files.iter().enumerate() {
            let id = if file.build_id.is_empty() { "-" } else { &file.build_id };
            let load =
                |(at, size, address): &(u64, u64, u64)| format!("{at:x}:{size:x}:{address:x}");
            let loads: Vec<String> = file.loads.iter().map(load).collect();
            let loads = if loads.is_empty() { "-".into() } else { loads.join(",") };
            let _ = writeln!(text, "f {n} {id} {loads} {}", clean(&file.path));
        }
        for stack in &self.stacks {
            let cut = match stack {
                UserStack { cut: true, .. } => "cut",
                UserStack { is_whole: true, .. } => "end",
                UserStack { .. } => "-",
            };
            let _ = write!(text, "s {} {} {cut}", stack.number, stack.pid);
            for place in &stack.frames {
                let _ = write!(text, " {place}");
            }
            text.push('\n');
            if let Some(raw) = &stack.raw {
                raw.lines(stack.number, &mut text);
            }
            if let Some(gaps) = &stack.gaps {
                let _ = write!(text, "g {}", stack.number);
                for gap in gaps {
                    let _ = write!(text, " {gap}");
                }
                text.push('\n');
            }
        }
        for ((file, offset), functions) in &self.names {
            let distance = functions.first().map_or(0, |f| f.offset);
            let _ = write!(text, "n {file}+{offset:x} {distance:x}");
            for function in functions {
                let _ = write!(text, "\t{}\t{}", clean(&function.name), clean(&function.source));
            }
            text.push('\n');
        }
        self.data.iter().for_each(|datum| datum.line(&mut text));
        text
    }

    /// Leaves out the files that no stack leads through, and that have no data.
    pub fn keep_used(&mut self) {
        let mut numbers: BTreeMap<u32, u32> = BTreeMap::new();
        let places = self.stacks.iter_mut().flat_map(UserStack::places_mut);
        let of_code = places.filter_map(|place| match place {
            Place::File(file, _) => Some(file),
            Place::Address(_) => None,
        });
        for file in of_code.chain(self.data.iter_mut().filter_map(Datum::file_mut)) {
            let next = numbers.len() as u32;
            *file = *numbers.entry(*file).or_insert(next);
        }
        let files = std::mem::take(&mut self.files);
        let mut kept: Vec<(u32, File)> = files
            .into_iter()
            .enumerate()
            .filter_map(|(old, file)| Some((*numbers.get(&(old as u32))?, file)))
            .collect();
        kept.sort_by_key(|(number, _)| *number);
        self.files = kept.into_iter().map(|(_, file)| file).collect();
        let names = std::mem::take(&mut self.names).into_iter();
        let renumbered = |((old, at), functions)| Some(((*numbers.get(&old)?, at), functions));
        self.names = names.filter_map(renumbered).collect();
    }

    /// Reads such lines; a line of another form is skipped.
    pub fn new(text: &[u8]) -> Code {
        let mut code = Code::default();
        for line in text.split(|b| *b == b'\n') {
            let line = String::from_utf8_lossy(line);
            let read = match line.split_at_checked(2) {
                Some(("f ", rest)) => code.file(rest),
                Some(("s ", rest)) => code.stack(rest),
                Some(("k ", rest)) => code.kernel(rest),
                Some(("b ", rest)) => code.frame_pointer(rest),
                Some(("c ", rest)) => code.caller(rest),
                Some(("g ", rest)) => code.gaps(rest),
                Some(("n ", rest)) => code.name(rest),
                Some(("d ", rest)) => Datum::read(rest).map(|datum| code.data.push(datum)),
                _ => None,
            };
            let lines = code.files.len().max(code.stacks.len());
            let lines = lines.max(code.names.len()).max(code.data.len());
            if read.is_some() && lines >= LINES_MAX {
                break;
            }
        }
        code
    }

    fn file(&mut self, line: &str) -> Option<()> {
        let mut words = line.splitn(4, ' ');
        let number: usize = words.next()?.parse().ok()?;
        let build_id = words.next()?.trim_start_matches('-').to_string();
        let loads = words.next()?.split(',').filter_map(load).take(LOADS_MAX).collect();
        let path = words.next()?.to_string();
        // Numbers are indices: of those that are out of order none is right.
        (number == self.files.len()).then(|| self.files.push(File { path, build_id, loads }))
    }

    fn stack(&mut self, line: &str) -> Option<()> {
        let mut words = line.split(' ');
        let number = words.next()?.parse().ok()?;
        let pid = words.next()?.parse().ok()?;
        let end = words.next()?;
        let (cut, is_whole) = (end == "cut", end == "end");
        let frames = words.map(place).collect::<Option<Vec<_>>>()?;
        self.stacks.push(UserStack { number, pid, cut, is_whole, frames, gaps: None, raw: None });
        Some(())
    }

    /// The stack of the line before, if it has this number.
    fn last(&mut self, number: &str) -> Option<&mut UserStack> {
        let number: u64 = number.parse().ok()?;
        self.stacks.last_mut().filter(|s| s.number == number)
    }

    fn raw(&mut self, number: &str) -> Option<&mut Raw> {
        Some(self.last(number)?.raw.get_or_insert_default())
    }

    fn kernel(&mut self, line: &str) -> Option<()> {
        let (number, frames) = line.split_once(' ')?;
        let frames = frames.split(' ').map(place).collect::<Option<_>>()?;
        self.raw(number)?.kernel = frames;
        Some(())
    }

    fn frame_pointer(&mut self, line: &str) -> Option<()> {
        let mut words = line.split(' ');
        let raw = self.raw(words.next()?)?;
        let at = words.next()?;
        let frame = words.next()?.parse().ok()?;
        match at {
            "-" => raw.frame = Some(frame),
            at => raw.push(Word { at: at.parse().ok()?, is: WordIs::Frame(frame) }),
        }
        Some(())
    }

    fn caller(&mut self, line: &str) -> Option<()> {
        let mut words = line.split(' ');
        let raw = self.raw(words.next()?)?;
        let at = words.next()?.parse().ok()?;
        raw.push(Word { at, is: WordIs::Return(place(words.next()?)?) });
        Some(())
    }

    fn gaps(&mut self, line: &str) -> Option<()> {
        let mut words = line.split(' ');
        let stack = self.last(words.next()?)?;
        stack.gaps = Some(words.map(|n| n.parse().ok()).collect::<Option<_>>()?);
        Some(())
    }

    fn name(&mut self, line: &str) -> Option<()> {
        let mut parts = line.split('\t');
        let (at, distance) = parts.next()?.split_once(' ')?;
        let Place::File(file, at) = place(at)? else { return None };
        let distance = u64::from_str_radix(distance, 16).ok()?;
        let mut functions = Vec::new();
        while let (Some(name), Some(source)) = (parts.next(), parts.next()) {
            let offset = if functions.is_empty() { distance } else { 0 };
            functions.push(Function { name: name.into(), offset, source: source.into() });
        }
        functions.truncate(INLINED_MAX);
        self.names.insert((file, at), functions);
        Some(())
    }
}

impl UserStack {
    /// The places of all frames, and of what may be one.
    pub fn places(&self) -> impl Iterator<Item = &Place> {
        self.frames.iter().chain(self.raw.iter().flat_map(Raw::places))
    }

    fn places_mut(&mut self) -> impl Iterator<Item = &mut Place> {
        self.frames.iter_mut().chain(self.raw.iter_mut().flat_map(Raw::places_mut))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, to: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Place::File(file, offset) => write!(to, "{file}+{offset:x}"),
            Place::Address(address) => write!(to, "{address:x}"),
        }
    }
}

fn load(word: &str) -> Option<(u64, u64, u64)> {
    let mut numbers = word.splitn(3, ':').map(|digits| u64::from_str_radix(digits, 16).ok());
    Some((numbers.next()??, numbers.next()??, numbers.next()??))
}

fn place(word: &str) -> Option<Place> {
    let hex = |digits| u64::from_str_radix(digits, 16).ok();
    match word.split_once('+') {
        Some((file, offset)) => Some(Place::File(file.parse().ok()?, hex(offset)?)),
        None => hex(word).map(Place::Address),
    }
}

pub(crate) fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Names come from the files of programs, and must not break lines.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let function = |name: &str, offset, source: &str| Function {
            name: name.into(),
            offset,
            source: source.into(),
        };
        let code = Code {
            files: vec![
                File {
                    path: "/opt/a program/x".into(),
                    build_id: "00ff".into(),
                    loads: vec![(0x1000, 0x20, 0x401000)],
                },
                File { path: "[perf map 7]".into(), ..File::default() },
            ],
            stacks: vec![UserStack {
                number: 65537,
                pid: 7,
                cut: true,
                is_whole: false,
                frames: vec![Place::File(0, 0x1234), Place::Address(0xffff), Place::File(1, 9)],
                gaps: Some(vec![0, 2]),
                raw: Some(Raw {
                    kernel: vec![Place::File(0, 0x1234), Place::File(1, 8)],
                    frame: Some(16),
                    words: vec![
                        Word { at: 16, is: WordIs::Frame(48) },
                        Word { at: 40, is: WordIs::Return(Place::File(0, 0x1230)) },
                    ],
                }),
            }],
            names: [(
                (0, 0x1234),
                vec![
                    function("operator+<int, char>(int)", 0x20, "/src/a b.cc:7"),
                    function("inlined", 0, ""),
                ],
            )]
            .into(),
            data: Vec::new(),
        };
        assert_eq!(Code::new(code.lines().as_bytes()), code);
    }

    #[test]
    fn names_do_not_break_lines() {
        let file = File { path: "/a\nf 1 - - /b".into(), ..File::default() };
        let code = Code { files: vec![file], ..Code::default() };
        assert_eq!(code.lines(), "f 0 - - /a?f 1 - - /b\n");
    }

    #[test]
    fn lines_of_another_form_are_skipped() {
        let text = b"f 3 - - /x\ns 1\ns 1 2 - zz\nn 0+1\nq\n\nn 1 2\ta\t\xff\nf x\ng 1 0\n\
            c 1 8 10\nb 1 - 8\nk 1 9";
        assert_eq!(Code::new(text), Code::default());
    }
}
