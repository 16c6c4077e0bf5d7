// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Events of klogger's own schema that readers of logs interpret. No other event can have such a
//! name.

use klogger_schema::layout::EventLayout;

/// The kind of a built-in event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Builtin {
    /// A thread existed when recording began.
    Exists,
    Fork,
    Exec,
    Rename,
    Exit,
    /// A thread out of scope that an event names.
    Seen,
    /// Events of this stream were lost.
    Lost,
    Mark,
}

impl Builtin {
    /// `None`: an event of a schema, or a built-in event that readers do not interpret.
    pub fn of(layout: &EventLayout) -> Option<Builtin> {
        Some(match layout.name.as_str() {
            "PROCESS_EXISTS" => Builtin::Exists,
            "PROCESS_FORK" => Builtin::Fork,
            "PROCESS_EXEC" => Builtin::Exec,
            "PROCESS_RENAME" => Builtin::Rename,
            "PROCESS_EXIT" => Builtin::Exit,
            "PROCESS_SEEN" => Builtin::Seen,
            "LOST" => Builtin::Lost,
            "MARK" => Builtin::Mark,
            _ => return None,
        })
    }

    /// Whether it may be in any stream, of a CPU or of a thread.
    pub fn is_of_any_stream(self) -> bool {
        matches!(self, Builtin::Lost | Builtin::Mark)
    }
}
