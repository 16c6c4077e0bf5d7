# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One file was opened; two files were."""

from __future__ import annotations

import pytest

from klogger.numerals import agreed


@pytest.mark.parametrize(
    ("sentence", "right"),
    [
        ("1 files were opened 1 times.", "1 file was opened 1 time."),
        ("1 processes that were reaped, 1 entries", "1 process that was reaped, 1 entry"),
        ("1 mutexes and 1 operations on 1 of 2 locks", "1 mutex and 1 operation on 1 of 2 locks"),
        ("Of 1 calls, 1 calls wait", "Of 1 call, 1 call waits"),
        ("1 directories have", "1 directory has"),
        ("(1 requests)", "(1 request)"),
    ],
)
def test_one(sentence: str, right: str) -> None:
    assert agreed(sentence) == right


@pytest.mark.parametrize(
    "sentence",
    [
        "2 files were opened 11 times, 0.1 times, 1,001 times, 1.1 times",
        "1 is not a plural, nor 1 process, 1 less, CPU 1 was, 1 ms, 1 as good as 2",
        "/dev/1 files, a-1 threads, 3:1 reads",
        "eth1 sends",
    ],
)
def test_others_stay(sentence: str) -> None:
    assert agreed(sentence) == sentence
