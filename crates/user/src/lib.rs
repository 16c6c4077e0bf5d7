// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger!(EVENT, field, ...)` in Rust programs: typed events in a ring that a recorder drains,
//! at a cost of some nanoseconds each.
//!
//! In `build.rs`, with `klogger-user-build` among the build-dependencies:
//!
//! ```text
//! fn main() {
//!     klogger_user_build::schema("my.klogger");
//! }
//! ```
//!
//! In the program:
//!
//! ```text
//! use klogger_user::klogger;
//!
//! klogger_user::schema!("my");
//!
//! fn serve(id: u64, path: &str) {
//!     klogger!(REQUEST, id, path);
//! }
//! ```
//!
//! The fast path and the path of an event that is off are Rust, and inlined. The slow path (a
//! thread's first event, a signal handler in the middle of another event, a full ring, a fork) is
//! the C of klogger.user.h, the same as in C programs. So a program in both languages has one file
//! and, for each thread, one ring.
//!
//! The feature `off` removes every call; then neither C nor Linux is needed.
//!
//! Items hidden in this documentation are for generated code.

#[cfg(not(feature = "off"))]
mod layout {
    include!(concat!(env!("OUT_DIR"), "/layout.rs"));
}
#[allow(non_snake_case)]
mod own;
mod record;
#[cfg(not(feature = "off"))]
mod runtime;
#[cfg_attr(feature = "off", path = "off.rs")]
mod unit;

#[doc(hidden)]
pub use own::MARK;
pub use record::Text;
#[doc(hidden)]
pub use record::{Record, Scalar, Tail, TailLength};
#[doc(hidden)]
pub use unit::{On, Unit, comm, irq, pidns_tid, ppid, tgid, tid};

/// Logs an event: `klogger!(EVENT, field, ...)`, with the fields in the order of their declaration.
///
/// Integers and `bool` are as in the schema (`int` is `i32`, `ulonglong` is `u64`), an array is
/// `&[T; N]`, a string is a reference to any [`Text`]. `klogger!(MARK, number, "text")` is part of
/// every schema.
#[cfg(not(feature = "off"))]
#[allow(clippy::crate_in_macro_def)] // the crate that logs
#[macro_export]
macro_rules! klogger {
    ($event:ident $(, $field:expr)* $(,)?) => {
        crate::klogger_events::$event($($field),*)
    };
}

/// Logs nothing, because the feature `off` is on. Fields are type-checked, and not evaluated.
#[cfg(feature = "off")]
#[allow(clippy::crate_in_macro_def)]
#[macro_export]
macro_rules! klogger {
    ($event:ident $(, $field:expr)* $(,)?) => {
        if false {
            crate::klogger_events::$event($($field),*)
        }
    };
}

/// Makes the events of these schemata available in the crate. It is used once, at the crate's root:
/// `schema!("my")`, `schema!("my", "net")`. `build.rs` has generated their code.
#[macro_export]
macro_rules! schema {
    ($($name:literal),+ $(,)?) => {
        #[doc(hidden)]
        #[allow(clippy::all, clippy::pedantic, missing_docs, non_snake_case, unused)]
        pub(crate) mod klogger_events {
            use $crate as klogger_user;
            pub(crate) use $crate::MARK;
            $(include!(concat!(env!("OUT_DIR"), "/", $name, ".klogger.rs"));)+
        }
    };
}

/// Links a schema's [`Unit`] before main(), at the time when C programs do it, or when the library
/// is opened. The constructors of klogger.user.h that create the shared file run later: they have
/// the next higher priority number.
#[cfg(not(feature = "off"))]
#[doc(hidden)]
#[macro_export]
macro_rules! link {
    ($unit:ident) => {
        const _: () = {
            extern "C" fn link() {
                $unit.link();
            }
            #[used]
            #[unsafe(link_section = ".init_array.00101")]
            static LINK: extern "C" fn() = link;
        };
    };
}

#[cfg(feature = "off")]
#[doc(hidden)]
#[macro_export]
macro_rules! link {
    ($unit:ident) => {};
}
