-- SPDX-License-Identifier: GPL-2.0-only
-- title: Handlers
-- question: When did which handler of an interrupt run, and for how long?
-- events: IRQ_NAME, IRQ_IN, IRQ_OUT, VEC_IN, VEC_OUT, SOFT_IN, SOFT_OUT, NMI
-- costs: IRQ_IN, IRQ_OUT, VEC_IN, VEC_OUT, SOFT_IN, SOFT_OUT, NMI
-- include: _handler
-- column from_ns [ns]: when it began
-- column to_ns [ns]: when it ended
-- column cpu: where
-- column level: soft, hard or non-maskable: a later one of these interrupts an earlier one
-- column class: timer, device, IPI, softirq, NMI or other
-- column name: of the device, or of the vector
-- column ns [ns]: how long, without what logging took, as far as the log says how much that is
-- column self_ns [ns]: without what interrupted it
-- column inside: it interrupted another handler, and is a part of its time
-- note: Without those in which events are missing.

-- table
SELECT from_ns, to_ns, cpu, ['soft', 'hard', 'non-maskable'][level + 1] AS level, class, name, ns,
    self_ns, inside
FROM handler ORDER BY from_ns, cpu;
