// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What each recording can set.

use super::{Scalar, Span};
use serde::{Deserialize, Serialize};

/// `parameter TYPE NAME in UNIT = DEFAULT from LEAST to MOST "doc"`: a constant of the schema's C,
/// which is set before it is loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Parameter {
    pub name: String,
    /// As it was written.
    #[serde(rename = "type")]
    pub type_name: String,
    pub scalar: Scalar,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doc: Option<String>,
    pub default: i128,
    /// Of a recording: the default, unless `klogger record --set` has another.
    pub value: i128,
    pub least: i128,
    pub most: i128,
    /// The position of the name.
    #[serde(skip)]
    pub span: Span,
}

impl Default for Parameter {
    fn default() -> Parameter {
        Parameter {
            name: String::new(),
            type_name: String::new(),
            scalar: Scalar::U64,
            unit: None,
            doc: None,
            default: 0,
            value: 0,
            least: 0,
            most: 0,
            span: Span::default(),
        }
    }
}
