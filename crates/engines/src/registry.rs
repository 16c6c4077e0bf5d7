// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The list of engines, and the values of `--engine`. All code that lists, describes or chooses an
//! engine uses these tables: one more engine is one more line in each.

use crate::choice::Choice;
use crate::engine::EngineInfo;
use crate::{bpf, kernel, user};

/// Every engine.
pub static ENGINES: [&EngineInfo; 3] = [&bpf::INFO, &kernel::INFO, &user::INFO];

/// Every value of `--engine`; the first one is the default.
pub static CHOICES: [Choice; 4] = [
    Choice {
        name: "auto",
        description: "bpf or user or both, by what the schemata have",
        engines: &[&bpf::INFO, &user::INFO],
    },
    Choice { name: bpf::INFO.name, description: bpf::INFO.description, engines: &[&bpf::INFO] },
    Choice {
        name: kernel::INFO.name,
        description: kernel::INFO.description,
        engines: &[&kernel::INFO, &user::INFO],
    },
    Choice { name: user::INFO.name, description: user::INFO.description, engines: &[&user::INFO] },
];

/// The choice of this name.
pub fn choice(name: &str) -> Option<&'static Choice> {
    CHOICES.iter().find(|c| c.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_engine_can_be_chosen_by_its_name() {
        for engine in ENGINES {
            let choice = choice(engine.name).unwrap();
            assert!(choice.includes(engine));
        }
        assert!(choice("none").is_none());
    }

    /// Blocks of a CPU are numbered by one drain thread.
    #[test]
    fn only_the_first_engine_of_a_choice_has_rings_of_cpus() {
        for choice in &CHOICES {
            assert!(choice.engines.iter().skip(1).all(|e| !e.probes), "{}", choice.name);
        }
    }
}
