# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How modules of tests share a boot (boots.py), with a stand-in for the guest."""

import subprocess
from types import ModuleType, SimpleNamespace

import pytest
from boots import Boot, Boots, Case

ONE = Boot("one", memory="3G")


def module(**cases) -> ModuleType:
    made = ModuleType("a module of tests")
    made.CASES = cases
    return made


MODULES = [
    module(late=Case(ONE, "true", seconds=5, last=True)),
    module(bad=Case(ONE, "false", seconds=7)),
    module(good=Case(ONE, "true", lambda _: ["a=/a"], seconds=9)),
    module(other=Case(Boot("two"), "true")),
    ModuleType("a module without cases"),
]


class Guest:
    """Ends each case with what `codes` says of its name; None: it does not come to its end."""

    def __init__(self, **codes):
        self.codes, self.scripts, self.options = codes, [], []

    def __call__(self, script, out, **options):
        self.scripts.append(script)
        self.options.append(options)
        for case in (out / "cases").iterdir():
            code = self.codes.get(case.name, 0)
            if code is not None:
                (out / case.name).mkdir()
                (out / case.name / ".code").write_text(f"{code}\n")
                (out / case.name / ".said").write_text(f"{case.name} said this")
        return subprocess.CompletedProcess("guest", 0, "its console", "")


@pytest.fixture
def boots(tmp_path):
    request = SimpleNamespace(session=SimpleNamespace(items=[]))
    request.session.items += [SimpleNamespace(module=module) for module in MODULES * 2]
    return lambda guest: Boots(request, guest, tmp_path, lambda name: None)


def test_one_boot_has_all_its_cases_and_no_others(boots):
    guest = Guest()
    shared = boots(guest)
    assert {shared.case(name).name for name in ("bad", "good", "late")} == {"bad", "good", "late"}
    (script,), (options,) = guest.scripts, guest.options
    assert script.index("keep bad") < script.index("keep good") < script.index("keep late")
    assert "other" not in script
    assert (options["timeout"], options["memory"]) == (21, "3G")
    assert "a=/a" in options["add"]


def test_a_case_that_fails_takes_nothing_from_the_others(boots):
    guest = Guest(bad=3)
    shared = boots(guest)
    shared.case("good")
    with pytest.raises(AssertionError, match="bad said this"):
        shared.case("bad")


def test_who_asks_again_has_one_more_boot(boots):
    guest = Guest(bad=None)
    shared = boots(guest)
    for _ in range(3):
        with pytest.raises(AssertionError, match=r"the guest ended before bad did:\nits console"):
            shared.case("bad")
    assert len(guest.scripts) == 2
    guest.codes.clear()
    shared.case("good")
    assert len(guest.scripts) == 2


def test_what_cannot_be_booted_is_a_skip_for_each(boots):
    def guest(*_, **__):
        pytest.skip("no kernel")

    shared = boots(guest)
    for name in ("good", "late"):
        with pytest.raises(pytest.skip.Exception, match="no kernel"):
            shared.case(name)
