// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Appends numbers and texts to a buffer of bytes, without allocating.

/// Appends a decimal number.
#[inline]
pub fn push_int(out: &mut Vec<u8>, value: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Appends `0x...`, lower case, without leading zeros.
#[inline]
pub fn push_hex(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(b"0x");
    let digits = (64 - value.leading_zeros()).div_ceil(4).max(1);
    for i in (0..digits).rev() {
        out.push(HEX[(value >> (4 * i) & 15) as usize]);
    }
}

/// Appends a number to the base 8, with a 0 in front, as rights of files are written: `0644`.
pub fn push_octal(out: &mut Vec<u8>, value: u64) {
    out.push(b'0');
    let digits = (64 - value.leading_zeros()).div_ceil(3);
    out.extend((0..digits).rev().map(|i| b'0' + (value >> (3 * i) & 7) as u8));
}

/// Appends ns as seconds with 9 decimals, right-aligned to `width` characters.
#[inline]
pub fn push_seconds(out: &mut Vec<u8>, ns: i64, width: usize) {
    const SECOND: u64 = 1_000_000_000;
    let magnitude = ns.unsigned_abs();
    let mut buffer = itoa::Buffer::new();
    let whole = buffer.format(magnitude / SECOND).as_bytes();
    let length = whole.len() + 10 + usize::from(ns < 0);
    out.resize(out.len() + width.saturating_sub(length), b' ');
    if ns < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(whole);
    let mut decimals = *b".000000000";
    let mut rest = magnitude % SECOND;
    for digit in decimals[1..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out.extend_from_slice(&decimals);
}

/// Appends a text so that it is unambiguous and cannot control a terminal: unchanged if it is one
/// plain word, otherwise in quotes, with `\n`, `\"`, `\\`, `\xNN`.
pub fn push_word(out: &mut Vec<u8>, text: &[u8]) {
    let plain = |b: &u8| b.is_ascii_graphic() && !matches!(b, b'"' | b'\\' | b'=' | b'\'');
    if !text.is_empty() && text.iter().all(plain) {
        return out.extend_from_slice(text);
    }
    push_quoted(out, text);
}

/// Appends a text in quotes, with the same escapes.
pub fn push_quoted(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' | '\\' => out.extend_from_slice(&[b'\\', c as u8]),
                '\n' => out.extend_from_slice(b"\\n"),
                '\t' => out.extend_from_slice(b"\\t"),
                c if acts(c) => push_escapes(out, c.encode_utf8(&mut [0; 4]).as_bytes()),
                c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        push_escapes(out, chunk.invalid());
    }
    out.push(b'"');
}

/// Whether a terminal interprets it instead of showing it: control characters, and those that
/// change the direction of text, so that it looks different from what it is.
pub fn acts(c: char) -> bool {
    let turns =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || c.is_control()
}

/// Makes `out` from `from` on one line that cannot control a terminal: control characters and
/// invalid UTF-8 become `\xNN`.
#[inline]
pub fn escape_from(out: &mut Vec<u8>, from: usize) {
    // No early exit, so that the loop is vectorized.
    let odd = out[from..].iter().fold(false, |odd, b| odd | !(b' '..=b'~').contains(b));
    if odd {
        let text = out.split_off(from);
        push_escaped(out, &text);
    }
}

#[cold]
fn push_escaped(out: &mut Vec<u8>, text: &[u8]) {
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            let mut bytes = [0; 4];
            let bytes = c.encode_utf8(&mut bytes).as_bytes();
            if acts(c) { push_escapes(out, bytes) } else { out.extend_from_slice(bytes) }
        }
        push_escapes(out, chunk.invalid());
    }
}

/// The text as one line that cannot control a terminal.
pub fn escaped(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    push_escaped(&mut out, text.as_bytes());
    String::from_utf8_lossy(&out).into_owned()
}

/// The same for a text of several lines.
pub fn escaped_lines(text: &str) -> String {
    text.split('\n').map(escaped).collect::<Vec<_>>().join("\n")
}

/// The text with blanks in the place of what acts on a terminal, so that places in it stay the
/// same. Ends of lines and tabs are kept.
pub fn blanked(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match acts(c) && !matches!(c, '\n' | '\t') {
            true => out.extend(std::iter::repeat_n(' ', c.len_utf8())),
            false => out.push(c),
        }
    }
    out
}

fn push_escapes(out: &mut Vec<u8>, bytes: &[u8]) {
    for b in bytes {
        out.extend_from_slice(&[b'\\', b'x', HEX[usize::from(b >> 4)], HEX[usize::from(b & 15)]]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untrusted_texts_cannot_move_the_cursor() {
        assert_eq!(
            escaped("no event 'a\x1b[2J\n\u{9b}1m'"),
            "no event 'a\\x1b[2J\\x0a\\xc2\\x9b1m'"
        );
        assert_eq!(blanked("a\x1b[2J\n\t\u{9b}1m\u{202e}b"), "a [2J\n\t  1m   b");
        assert_eq!(escaped("plain \"words\" \u{e4}"), "plain \"words\" \u{e4}");
    }

    fn with(f: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        f(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers() {
        assert_eq!(with(|o| push_hex(o, 0)), "0x0");
        assert_eq!(with(|o| push_hex(o, 0xdead_beef)), "0xdeadbeef");
        assert_eq!(with(|o| push_hex(o, u64::MAX)), "0xffffffffffffffff");
        assert_eq!(with(|o| push_seconds(o, 1_000_000_001, 13)), "  1.000000001");
        assert_eq!(with(|o| push_seconds(o, -5, 0)), "-0.000000005");
        assert_eq!(with(|o| push_seconds(o, i64::MIN, 0)), "-9223372036.854775808");
    }

    #[test]
    fn texts_are_one_word_or_quoted() {
        assert_eq!(with(|o| push_word(o, b"kworker/0:1-events")), "kworker/0:1-events");
        assert_eq!(with(|o| push_word(o, b"")), "\"\"");
        assert_eq!(with(|o| push_word(o, b"a b\n\"\x1b[1m\xff")), r#""a b\n\"\x1b[1m\xff""#);
        assert_eq!(with(|o| push_word(o, "größe".as_bytes())), "\"größe\"");
        assert_eq!(with(|o| push_word(o, "\u{202e}x".as_bytes())), "\"\\xe2\\x80\\xaex\"");
    }

    #[test]
    fn nothing_controls_a_terminal() {
        let escaped_from = |text: &[u8], from| {
            with(|o| {
                o.extend_from_slice(text);
                escape_from(o, from);
            })
        };
        assert_eq!(escaped_from(b"\x1b[1mplain \"text\"", 4), "\x1b[1mplain \"text\"");
        assert_eq!(
            escaped_from(b"a\x1b]0;x\x07\n\xc2\x9b\xffz", 1),
            r"a\x1b]0;x\x07\x0a\xc2\x9b\xffz"
        );
        assert_eq!(escaped("größe\u{2028}\t"), r"größe\xe2\x80\xa8\x09");
        assert_eq!(escaped_lines("a\r\nb"), "a\\x0d\nb");
    }
}
