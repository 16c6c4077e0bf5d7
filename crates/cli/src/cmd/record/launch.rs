// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What the command gets from a program that is between the shell and us.

use klogger_recorder::Launch;

/// For `klogger watch` and `klogger why`, which start us, and whose command we start.
#[derive(clap::Args)]
pub struct Own {
    /// The command's process group
    #[arg(long, hide = true, value_name = "PGID")]
    command_group: Option<u32>,
    /// A descriptor that is the command's standard error
    #[arg(long, hide = true, value_name = "FD")]
    command_stderr: Option<i32>,
    /// Signals that the command ignores
    #[arg(long, hide = true, value_name = "NUMBER", value_delimiter = ',')]
    command_ignores: Vec<i32>,
}

impl Own {
    pub fn launch(&self) -> Launch {
        if let Some(stderr) = self.command_stderr {
            klogger_os::do_not_pass_on(stderr);
        }
        Launch {
            group: self.command_group,
            stderr: self.command_stderr,
            ignored: self.command_ignores.clone(),
        }
    }
}
