// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Replaces unit.rs if the feature `off` is on: all events are off.

use crate::record::{Record, TailLength};
use std::ffi::CStr;

pub struct Unit<const EVENTS: usize>;

impl<const EVENTS: usize> Unit<EVENTS> {
    pub const fn new(
        _name: &'static CStr,
        _names: &'static str,
        _text: &'static str,
    ) -> Unit<EVENTS> {
        Unit
    }

    pub fn on<const INDEX: usize>(&'static self) -> Option<On> {
        None
    }
}

pub(crate) fn own() -> &'static Unit<15> {
    &Unit
}

#[derive(Clone, Copy)]
pub enum On {}

impl On {
    pub fn log<const FIXED: usize>(
        self,
        _tail: impl TailLength,
        _fill: impl FnOnce(&mut Record<FIXED>),
    ) -> bool {
        match self {}
    }

    pub fn log_slow<const FIXED: usize>(
        self,
        _tail: impl TailLength,
        _fill: impl FnOnce(&mut Record<FIXED>),
    ) {
        match self {}
    }
}

pub fn tid() -> u32 {
    0
}

pub fn tgid() -> u32 {
    0
}

pub fn ppid() -> u32 {
    0
}

pub fn irq() -> u8 {
    0
}

pub fn pidns_tid() -> u32 {
    0
}

pub fn comm() -> [u8; 16] {
    [0; 16]
}
