// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Places in programs, as `user`, `return user` and `usdt` name them: `PROGRAM:FUNCTION`,
//! `PROGRAM:FUNCTION+OFFSET`, `PROGRAM:ADDRESS`, `PROGRAM:PROVIDER:NAME`.

/// The word that stands for the recorded command, or for the program of each recorded process.
pub const COMMAND: &str = "command";

/// A place in a program or library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InProgram<'a> {
    /// A path, the name of a library, or [`COMMAND`].
    pub program: &'a str,
    pub place: Place<'a>,
}

/// Where in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place<'a> {
    /// A function, and bytes from its beginning.
    Function { name: &'a str, plus: u64 },
    /// An address as the file has it, which `nm` and `objdump` print.
    Address(u64),
    /// A static probe.
    Static { provider: &'a str, name: &'a str },
}

impl<'a> InProgram<'a> {
    /// Of a probe at a function or an address.
    pub fn of_function(name: &'a str) -> Option<InProgram<'a>> {
        let (program, place) = split(name)?;
        let place = match address(place) {
            Some(address) => Place::Address(address),
            None => match place.rsplit_once('+').and_then(|(f, n)| Some((f, number(n)?))) {
                Some((name, plus)) => Place::Function { name, plus },
                None => Place::Function { name: place, plus: 0 },
            },
        };
        let good = match place {
            Place::Function { name, .. } => is_function(name),
            Place::Address(_) | Place::Static { .. } => true,
        };
        good.then_some(InProgram { program, place })
    }

    /// Of a static probe.
    pub fn of_static(name: &'a str) -> Option<InProgram<'a>> {
        let mut parts = name.rsplitn(3, ':');
        let (name, provider, program) = (parts.next()?, parts.next()?, parts.next()?);
        let good = ![name, provider, program].contains(&"");
        good.then_some(InProgram { program, place: Place::Static { provider, name } })
    }
}

/// Whether it is a path that begins at the folder of whoever records.
pub fn is_relative(program: &str) -> bool {
    program.contains('/') && !program.starts_with('/')
}

/// The program and what is after it: at the first colon that is not one of `::`, which names of C++
/// and Rust contain.
pub fn split(name: &str) -> Option<(&str, &str)> {
    let bytes = name.as_bytes();
    let is_single = |at: &usize| {
        bytes[*at] == b':'
            && bytes.get(at + 1) != Some(&b':')
            && (*at == 0 || bytes[at - 1] != b':')
    };
    let at = (0..bytes.len()).find(is_single)?;
    let (program, place) = (&name[..at], &name[at + 1..]);
    (!program.is_empty() && !place.is_empty()).then_some((program, place))
}

fn address(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// Decimal, or hexadecimal after `0x`.
fn number(text: &str) -> Option<u64> {
    let is_number = text.starts_with(|c: char| c.is_ascii_digit());
    is_number.then(|| address(text).or_else(|| text.parse().ok())).flatten()
}

/// A name of C, also with a version (`@GLIBC_2.17`); or of C++ or Rust, as compilers write it into
/// a program or as its author wrote it.
fn is_function(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || "_<~".contains(c))
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "_.@+-:<>,~".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(name: &str) -> Option<(&str, &str, u64)> {
        match InProgram::of_function(name)? {
            InProgram { program, place: Place::Function { name, plus } } => {
                Some((program, name, plus))
            }
            InProgram { .. } => None,
        }
    }

    #[test]
    fn functions() {
        assert_eq!(function("/bin/sh:main"), Some(("/bin/sh", "main", 0)));
        assert_eq!(function("libc:malloc+0x10"), Some(("libc", "malloc", 16)));
        assert_eq!(function("libc:malloc+10"), Some(("libc", "malloc", 10)));
        assert_eq!(function("libc:memcpy@GLIBC_2.14"), Some(("libc", "memcpy@GLIBC_2.14", 0)));
        assert_eq!(function("command:a::B::~B"), Some(("command", "a::B::~B", 0)));
        assert_eq!(function("/x:V<int>::operator++"), Some(("/x", "V<int>::operator++", 0)));
        for bad in ["main", ":main", "/bin/sh:", "/bin/sh:9lives", "a::b", "", ":"] {
            assert_eq!(InProgram::of_function(bad), None, "{bad}");
        }
    }

    #[test]
    fn addresses_and_static_probes() {
        let at = |name| InProgram::of_function(name).map(|found| found.place);
        assert_eq!(at("/bin/sh:0x1f40"), Some(Place::Address(0x1f40)));
        assert_eq!(at("/bin/sh:0x"), None);
        let place = Place::Static { provider: "gc", name: "start" };
        assert_eq!(
            InProgram::of_static("/usr/bin/x:gc:start"),
            Some(InProgram { program: "/usr/bin/x", place })
        );
        for bad in ["gc:start", ":gc:start", "/x::start", "/x:gc:"] {
            assert_eq!(InProgram::of_static(bad), None, "{bad}");
        }
    }
}
