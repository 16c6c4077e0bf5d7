-- SPDX-License-Identifier: GPL-2.0-only
-- title: What interrupts cost besides
-- question: How much longer does the computation itself take for each interrupt, when the handlers'
--     time is removed?
-- order: 20
-- events: LOOP_BEGIN, LOOP, IRQ_IN, IRQ_OUT, VEC_IN, VEC_OUT, SOFT_IN, SOFT_OUT, SCHEDIN, SCHEDOUT
-- include: ../../interrupt/analyses/_handler
-- include: _iteration
-- picture: bars x=indirect y=shown
-- column class: what interrupted: timer, device, or IPI (another CPU)
-- column touches [bytes]: memory that an iteration walks; 8: one word of the stack; 0: none
-- column iterations [count]: with interrupts of this class only, or with none
-- column interrupts [count]: in these
-- column direct [ns]: time in handlers, for each interrupt
-- column indirect [ns]: what the computation takes longer for each interrupt, by linear regression
-- column low [ns]: with 95 % confidence not less than this
-- column high [ns]: and not more than this
-- column seen: whether 0 is outside of these
-- column shown: class
-- note: Contains the way into the kernel and back, the caches' share, and most of the cost of
--     logging (one event for each handler).
-- note: Iterations that are off by over 5 % from their block's median are left out: that is no
--     interrupt that the log knows.
-- empty: there are not enough iterations with interrupts of one class only, beside those without
--     any

CREATE TEMP TABLE indirect_point AS
WITH block AS (
    SELECT i.*, raw - all_ns AS clean, b.time AS block
    FROM iteration_kept AS i ASOF JOIN LOOP_BEGIN AS b ON i.pid = b.pid AND i.to_ns >= b.time
), middle AS (
    -- Of iterations without interrupts; the CPU's speed may change from block to block.
    SELECT pid, block, median(clean) AS middle FROM block WHERE interrupts = 0 AND all_ns = 0
    GROUP BY pid, block
)
SELECT touches, class, interrupts, all_ns, clean - middle AS longer
FROM block JOIN middle USING (pid, block)
WHERE abs(clean - middle) <= 0.05 * middle AND (class IS NOT NULL OR interrupts = 0);

CREATE TEMP TABLE indirect_slope AS
WITH known AS (
    SELECT DISTINCT touches, class FROM indirect_point WHERE class IS NOT NULL
), joined AS (
    SELECT k.touches, k.class, p.interrupts AS n, p.longer, p.all_ns, p.class IS NOT NULL AS hit
    FROM known AS k JOIN indirect_point AS p ON p.touches = k.touches
        AND (p.class = k.class OR p.interrupts = 0 AND p.class IS NULL)
), fitted AS (
    SELECT class, touches, count(*) AS iterations, sum(n)::BIGINT AS interrupts,
        sum(all_ns) FILTER (hit) AS direct_ns,
           regr_slope(longer, n) AS slope, regr_sxx(longer, n) AS sxx, regr_syy(longer, n) AS syy,
           regr_sxy(longer, n) AS sxy
    FROM joined GROUP BY class, touches
)
SELECT *, 1.96 * sqrt(greatest(syy - sxy * sxy / sxx, 0) / (iterations - 2) / sxx) AS half
FROM fitted WHERE iterations > 30 AND interrupts >= 10 AND sxx > 0;

-- table
SELECT class, touches, iterations, interrupts, (direct_ns / interrupts)::BIGINT AS direct,
    round(slope)::BIGINT AS indirect,
       round(slope - half)::BIGINT AS low, round(slope + half)::BIGINT AS high,
       CASE WHEN slope - half > 0 THEN 'longer' WHEN slope + half < 0 THEN 'shorter'
           ELSE 'no difference' END AS seen
FROM indirect_slope ORDER BY interrupts DESC, class, touches;

-- picture
SELECT class || CASE touches WHEN 0 THEN ', no memory' WHEN 8 THEN ', one word'
    ELSE format(', array of {} KiB', touches // 1024) END AS shown,
       round(slope)::BIGINT AS indirect, round(slope - half)::BIGINT AS low,
       round(slope + half)::BIGINT AS high
FROM indirect_slope ORDER BY interrupts DESC, class, touches;

-- finding
SELECT format('The computation itself is {} longer ({} to {}) for each {} interrupt in it, '
              'besides {} in handlers.', duration(slope),
              duration(slope - half), duration(slope + half), class,
              duration(direct_ns / interrupts)),
       slope * interrupts / greatest((SELECT sum(raw) FROM iteration_kept), 1) AS weight
FROM indirect_slope WHERE slope - half > 0 ORDER BY weight DESC, class, touches;

-- warning
FROM iteration_warning UNION ALL FROM handler_warning;
