# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Flame graphs for a page: from a tree of names and values to what `page/flame.js` draws.

A value is that of a node with all its children. What is less than a thousandth of the whole is
summed up: a page must stay small.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from klogger.document import text
from klogger.units import printable

# Between the frames of a stack in one text.
SEPARATOR = ";"
# Of the whole: what is less is added up as `OTHERS`.
LEAST = 0.001
OTHERS = "(others)"
# Nodes below each other at most: the rest of a stack is left out, with its time in the last one.
DEEPEST = 200


@dataclass
class Node:
    """`value`: with all children; `before`: the same in what it is compared with."""

    name: str
    value: float = 0.0
    before: float = 0.0
    children: dict[str, Node] = field(default_factory=dict)

    def add(self, path: Iterable[str], value: float, before: float = 0.0) -> None:
        """A stack below this node, the outermost frame first."""
        node = self
        node.value += value
        node.before += before
        for name in path:
            node = node.children.setdefault(name, Node(name))
            node.value += value
            node.before += before


def tree(stacks: Iterable[tuple[str, float]], name: str = "all") -> Node:
    """Of stacks as texts, with their values."""
    root = Node(name)
    for stack, value in stacks:
        root.add(stack.split(SEPARATOR)[:DEEPEST], value)
    return root


def difference(a: Mapping[str, float], b: Mapping[str, float], name: str = "all") -> Node:
    """The stacks of B, with what they were in A; those that are in A only are below their callers,
    with the value 0.
    """
    root = Node(name)
    for stack in {**b, **a}:
        path = stack.split(SEPARATOR)[:DEEPEST]
        root.add(path, b.get(stack, 0.0), a.get(stack, 0.0))
    return root


def as_json(root: Node, unit: str = "ns", *, compared: bool = False) -> dict[str, Any]:
    """What the page has: each node is a list: name, value, children (the greatest first) and, if
    `compared`, its value before. `omitted`: how many nodes were added up.
    """
    least, least_before, omitted = root.value * LEAST, root.before * LEAST, 0

    def is_shown(node: Node) -> bool:
        gone = compared and node.before > 0 and node.before >= least_before
        return node.value >= least or gone or node.name == OTHERS

    def made(node: Node) -> list[Any]:
        nonlocal omitted
        shown = sorted(
            (c for c in node.children.values() if is_shown(c)),
            key=lambda c: (-c.value, c.name),
        )
        children = [made(child) for child in shown]
        rest = [c for c in node.children.values() if not is_shown(c)]
        if rest:
            omitted += len(rest)
            values = sum(c.value for c in rest), sum(c.before for c in rest)
            children.append([OTHERS, values[0], [], *values[1:][:compared]])
        before = [node.before] if compared else []
        return [printable(node.name), node.value, children, *before]

    nodes = made(root)
    return {"root": nodes, "unit": unit, "omitted": omitted}


def figure(name: str) -> str:
    """The place of a flame graph, by the name under which the page's script has its data."""
    return f'<figure><div class="flame" data-flame="{text(name)}"></div></figure>'
