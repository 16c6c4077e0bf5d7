# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Tests whose oracle needs something of the machine that this one did not give while they ran.

Such a test names its condition, measures it during the run, and checks the condition only when the
oracle fails, or where the oracle means nothing without it. A test without a verdict is no success:
tests/tally.py counts them, and a run with more than a few fails.
"""

from typing import NoReturn

import pytest

PREFIX = "disturbed: "


def disturbed(why: str) -> NoReturn:
    """Ends the test without a verdict: `why` says what was measured of the condition that the test
    needs.
    """
    pytest.skip(PREFIX + why)
