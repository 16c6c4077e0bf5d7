// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! A record whose fields are being stored.

use std::borrow::Cow;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::path::{Path, PathBuf};
use std::ptr;

/// Bytes of a `string` without a length at most.
const STRING_MAX: usize = 255;

/// Space in a ring for a record whose fixed part, header word included, has `FIXED` bytes.
pub struct Record<const FIXED: usize> {
    at: *mut u8,
}

mod sealed {
    /// Types of fields: any bytes of a record may be overwritten with them.
    ///
    /// # Safety
    ///
    /// The type has no padding.
    pub unsafe trait Scalar: Copy {}
}
pub use sealed::Scalar;

macro_rules! scalars {
    ($($t:ty)*) => { $(
        // SAFETY: a primitive type.
        unsafe impl Scalar for $t {}
    )* };
}
scalars!(bool i8 u8 i16 u16 i32 u32 i64 u64);

impl<const FIXED: usize> Record<FIXED> {
    /// # Safety For as long as this lives, `FIXED` bytes at `at`, which is a multiple of 8, are
    /// there to be written to.
    #[inline(always)]
    #[cfg_attr(feature = "off", allow(dead_code))]
    pub(crate) unsafe fn new(at: *mut u8) -> Record<FIXED> {
        Record { at }
    }

    #[inline(always)]
    pub fn put<const AT: usize, T: Scalar>(&mut self, value: T) {
        const {
            assert!(AT >= 8 && AT.is_multiple_of(align_of::<T>()));
            assert!(AT + size_of::<T>() <= FIXED);
        }
        // SAFETY: aligned and within the record, by the assertion and by new().
        unsafe { self.at.add(AT).cast::<T>().write(value) }
    }

    #[inline(always)]
    pub fn put_array<const AT: usize, T: Scalar, const N: usize>(&mut self, values: &[T; N]) {
        const {
            assert!(
                AT >= 8 && AT.is_multiple_of(align_of::<T>()) && AT + size_of::<[T; N]>() <= FIXED
            )
        }
        // SAFETY: as in put().
        unsafe { self.at.add(AT).cast::<[T; N]>().write(*values) }
    }

    /// The text up to the first NUL, cut to N - 1 bytes, padded with zeros, because a flight
    /// recorder's ring contains old bytes.
    #[inline(always)]
    pub fn put_text<const AT: usize, const N: usize>(&mut self, text: &[u8]) {
        const { assert!(AT >= 8 && N > 0 && AT + N <= FIXED) }
        let text = cut(text, N - 1);
        // SAFETY: AT + N bytes are available, by the assertion and by new(), and the text has fewer
        // than N. It is not part of a ring, because no references to a ring exist.
        unsafe {
            ptr::copy_nonoverlapping(text.as_ptr(), self.at.add(AT), text.len());
            ptr::write_bytes(self.at.add(AT + text.len()), 0, N - text.len());
        }
    }
}

/// The variable part of a record: a `string`, several as pairs of pairs, or nothing: `()`.
pub trait TailLength: Copy {
    /// Bytes at most.
    const MAX: usize;
    /// Bytes of all texts, MAX at most.
    fn bytes(self) -> usize;
    /// Stores them one after the other.
    ///
    /// # Safety
    ///
    /// `bytes()` bytes at `to` are there to be written to, and are no part of a text.
    unsafe fn store(self, to: *mut u8);
}

impl TailLength for () {
    const MAX: usize = 0;

    #[inline(always)]
    fn bytes(self) -> usize {
        0
    }

    #[inline(always)]
    unsafe fn store(self, _: *mut u8) {}
}

/// A `string` to be logged: its length must be known before space is reserved.
#[derive(Clone, Copy)]
pub struct Tail<'a, const MOST: usize = STRING_MAX>(&'a [u8]);

impl<'a, const MOST: usize> Tail<'a, MOST> {
    #[inline(always)]
    pub fn of(text: &'a (impl Text + ?Sized)) -> Tail<'a, MOST> {
        Tail(cut(text.as_text(), MOST))
    }

    #[inline(always)]
    pub fn length(self) -> u16 {
        self.0.len() as u16
    }
}

impl<const MOST: usize> TailLength for Tail<'_, MOST> {
    const MAX: usize = MOST;

    #[inline(always)]
    fn bytes(self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: promised by the caller.
        unsafe { ptr::copy_nonoverlapping(self.0.as_ptr(), to, self.0.len()) }
    }
}

impl<A: TailLength, B: TailLength> TailLength for (A, B) {
    const MAX: usize = A::MAX + B::MAX;

    #[inline(always)]
    fn bytes(self) -> usize {
        self.0.bytes() + self.1.bytes()
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: promised by the caller; the second text follows the first one.
        unsafe {
            self.0.store(to);
            self.1.store(to.add(self.0.bytes()));
        }
    }
}

/// The text up to the first NUL, at most `max` bytes.
#[inline(always)]
fn cut(text: &[u8], max: usize) -> &[u8] {
    let text = &text[..text.len().min(max)];
    let nul = text.iter().position(|&byte| byte == 0);
    nul.map_or(text, |at| &text[..at])
}

/// Types that can be logged as a string. In any encoding, the text is logged up to the first NUL,
/// as in C, and up to 255 bytes, or N of a `string[..N]`, or N less one of a `string[N]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be logged as a string",
    note = "strings are references to str, [u8], CStr, OsStr, Path, or what owns one of these"
)]
pub trait Text {
    fn as_text(&self) -> &[u8];
}

macro_rules! texts {
    ($($t:ty, $text:ident => $bytes:expr;)*) => { $(
        impl Text for $t {
            #[inline(always)]
            fn as_text(&self) -> &[u8] {
                let $text = self;
                $bytes
            }
        }
    )* };
}
texts! {
    str, text => text.as_bytes();
    String, text => text.as_bytes();
    [u8], text => text;
    Vec<u8>, text => text;
    CStr, text => text.to_bytes();
    CString, text => text.to_bytes();
    OsStr, text => text.as_encoded_bytes();
    OsString, text => text.as_encoded_bytes();
    Path, text => text.as_os_str().as_encoded_bytes();
    PathBuf, text => text.as_os_str().as_encoded_bytes();
}

impl<const N: usize> Text for [u8; N] {
    #[inline(always)]
    fn as_text(&self) -> &[u8] {
        self
    }
}

impl<T: Text + ?Sized> Text for &T {
    #[inline(always)]
    fn as_text(&self) -> &[u8] {
        T::as_text(self)
    }
}

impl<T: Text + ToOwned + ?Sized> Text for Cow<'_, T> {
    #[inline(always)]
    fn as_text(&self) -> &[u8] {
        T::as_text(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts_are_their_bytes() {
        let owned = String::from("abc");
        assert_eq!(owned.as_text(), b"abc");
        assert_eq!((&"abc").as_text(), b"abc");
        assert_eq!(c"abc".as_text(), b"abc");
        assert_eq!(Path::new("/a/b").as_text(), b"/a/b");
        assert_eq!(Cow::Borrowed("abc").as_text(), b"abc");
        assert_eq!(b"a\xff\0b".as_text(), b"a\xff\0b");
    }

    proptest! {
        #[test]
        fn a_tail_ends_at_a_nul_or_at_255(text in proptest::collection::vec(prop_oneof![1u8..=255,
            0u8..40], 0..600)) {
            let letters = text.iter().copied().take_while(|&b| b != 0);
            let expected: Vec<u8> = letters.take(255).collect();
            let tail: Tail = Tail::of(&text);
            prop_assert_eq!(tail.0, &expected[..]);
            prop_assert_eq!(usize::from(tail.length()), expected.len());
        }

        #[test]
        fn texts_follow_each_other(texts in proptest::array::uniform3(
            proptest::collection::vec(1u8..=255, 0..40))) {
            let [a, b, c] = &texts;
            let tails = (Tail::<7>::of(a), (Tail::<20>::of(b), Tail::<30>::of(c)));
            let expected =
                [&a[..a.len().min(7)], &b[..b.len().min(20)], &c[..c.len().min(30)]].concat();
            let mut place = [0u8; 58];
            prop_assert_eq!(tails.bytes(), expected.len());
            // SAFETY: 57 bytes are enough for all of them.
            unsafe { tails.store(place.as_mut_ptr()) };
            prop_assert_eq!(&place[..expected.len()], &expected[..]);
            prop_assert!(place[expected.len()..].iter().all(|&b| b == 0));
        }

        #[test]
        fn a_fixed_text_fills_its_place_and_no_more(text in proptest::collection::vec(0u8..4,
            0..20)) {
            let mut ring = [0xaa_aa_aa_aa_aa_aa_aa_aau64; 4];
            // SAFETY: 24 of 32 bytes.
            let mut record = unsafe { Record::<24>::new(ring.as_mut_ptr().cast()) };
            record.put_text::<9, 7>(&text);
            let bytes: Vec<u8> = ring.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let mut expected = [0u8; 7];
            text.iter().take_while(|&&b| b != 0).take(6).enumerate().for_each(|(i,
                &b)| expected[i] = b);
            prop_assert_eq!(&bytes[9..16], &expected[..]);
            prop_assert!(bytes[..9].iter().chain(&bytes[16..]).all(|&b| b == 0xaa));
        }
    }
}
