// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Threads, of which there may be no more: control groups (`pids.max`) and users (`ulimit -u`) have
//! limits.

use super::Error;
use std::io;
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

/// The error of a thread that cannot be started.
pub fn none(error: &io::Error) -> Error {
    Error::new(format!("cannot start a thread: {error}")).help(
        "raise the limit of threads: pids.max of the control group (TasksMax, --pids-limit), or \
         ulimit -u",
    )
}

/// Starts a thread.
///
/// # Errors
/// There may be no more threads.
pub fn start<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Error> {
    Builder::new().name(name.into()).spawn(run).map_err(|e| none(&e))
}

/// Starts a thread that borrows from its scope.
///
/// # Errors
/// There may be no more threads.
pub fn start_in<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    run: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, Error> {
    Builder::new().spawn_scoped(scope, run).map_err(|e| none(&e))
}

/// Starts a thread for work that can be done without.
pub fn try_start(name: &str, run: impl FnOnce() + Send + 'static) {
    let _ = Builder::new().name(name.into()).spawn(run);
}
