// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The columns of numbers that timeline.py packs: unpacked, grouped by CPU and by thread, and made
// into levels of coarser bins.

async function unpack({ rows, layout, data }) {
  const packed = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const planes = new Uint8Array(await new Response(stream).arrayBuffer());
  const columns = { rows };
  let at = 0;
  for (const { name, depth, ascending } of layout) {
    const column = ascending || depth > 4 ? new Float64Array(rows) : new Uint32Array(rows);
    for (let factor = 1, d = 0; d < depth; d++, factor *= 256) {
      for (let i = 0; i < rows; i++) column[i] += planes[at++] * factor;
    }
    if (ascending) for (let i = 1; i < rows; i++) column[i] += column[i - 1];
    columns[name] = column;
  }
  return columns;
}

// A stable counting sort: the places of `order` by `key`, which is less than `count`.
function sortBy(order, key, count) {
  const next = new Uint32Array(count + 1);
  for (const i of order) next[key[i] + 1]++;
  for (let k = 0; k < count; k++) next[k + 1] += next[k];
  const first = next.slice();
  const sorted = new Uint32Array(order.length);
  for (const i of order) sorted[next[key[i]]++] = i;
  return { sorted, first };
}

function counted(rows) {
  return Uint32Array.from({ length: rows }, (_, i) => i);
}

// The rows of each CPU, and of each thread, in the order of time.
function grouped(columns, order, cpus, threads) {
  return { cpu: sortBy(order, columns.cpu, cpus), thread: sortBy(order, columns.id, threads) };
}

function levelOf(width, parts, cpus, threads) {
  const bins = parts.rows ? parts.bin.reduce((a, b) => Math.max(a, b), 0) + 1 : 1;
  const byId = sortBy(counted(parts.rows), parts.id, threads).sorted;
  const byBin = sortBy(byId, parts.bin, bins).sorted;
  return { width, bins, ...parts, by: grouped(parts, byBin, cpus, threads) };
}

function coarser(level, cpus, threads) {
  const parts = { rows: 0, bin: [], cpu: [], id: [], share: [] };
  const slot = new Int32Array(cpus * threads);
  const seen = new Float64Array(cpus * threads).fill(-1);
  for (let i = 0; i < level.rows; i++) {
    const bin = Math.floor(level.bin[i] / 4);
    const key = level.cpu[i] * threads + level.id[i];
    if (seen[key] !== bin) {
      seen[key] = bin;
      slot[key] = parts.rows++;
      parts.bin.push(bin);
      parts.cpu.push(level.cpu[i]);
      parts.id.push(level.id[i]);
      parts.share.push(0);
    }
    parts.share[slot[key]] += level.share[i] / 4;
  }
  return levelOf(level.width * 4, parts, cpus, threads);
}

// From the finest to one with about as many bins as a screen has pixels.
function levelsOf(parts, width, shareMax, cpus, threads) {
  parts.share = Float32Array.from(parts.share, (s) => s / shareMax);
  const levels = [levelOf(width, parts, cpus, threads)];
  while (levels.at(-1).bins > 400) levels.push(coarser(levels.at(-1), cpus, threads));
  return levels;
}

// The first place in sorted[low, high) whose value is at least `value`.
function search(sorted, low, high, values, value) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[sorted[middle]] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

function lowest(values, length, value) {
  let [low, high] = [0, length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

function count(values, { length }, from, to) {
  return lowest(values, length, to) - lowest(values, length, from);
}
