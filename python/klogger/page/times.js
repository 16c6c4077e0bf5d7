// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Times as text, and the ticks of an axis of time.

// A number with so many decimals, and commas between thousands.
function rounded(value, digits) {
  return value.toLocaleString("en", {
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  });
}

// As durations.py does it, whose tables DURATIONS has.
function duration(ns) {
  const found = DURATIONS.units.find(([limit]) => Math.abs(ns) < limit);
  const [, factor, unit] = found ?? [0, DURATIONS.second, "s"];
  const value = ns / factor;
  const fewer = DURATIONS.decimals.find(([limit]) => Math.abs(value) >= limit);
  const digits = factor === 1 ? 0 : fewer ? fewer[1] : DURATIONS.most;
  return `${rounded(value, digits)} ${unit}`;
}

// A moment, with as many digits as `step` can tell apart.
function moment(ns, step) {
  if (ns === 0) return "0";
  const falling = [...DURATIONS.units].reverse();
  const smaller = falling.find(([, factor]) => factor === 1 || ns >= factor);
  const seconds = step >= DURATIONS.second || ns >= DURATIONS.second;
  const [, factor, unit] = seconds ? [0, DURATIONS.second, "s"] : smaller;
  const digits = Math.min(9, Math.max(0, Math.ceil(-Math.log10(step / factor) - 1e-9)));
  return `${rounded(ns / factor, digits)} ${unit}`;
}

function ticks(from, to, count) {
  const rough = (to - from) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
  const found = [];
  for (let k = Math.ceil(from / step); k * step <= to; k++) found.push(k * step);
  return { step, found };
}
