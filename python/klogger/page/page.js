// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Starts the pictures, and joins them: a thread or a program that is selected in one is seen in all
// of them.

function element(name, properties) {
  return Object.assign(document.createElement(name), properties);
}

// What is selected: a thread (name and program), or a program (both names are the same), or
// nothing.
class Selection {
  constructor() {
    this.picked = null;
    this.listeners = [];
  }

  listen(listener) {
    this.listeners.push(listener);
  }

  // Again what is selected already: then nothing is.
  pick(what) {
    const same = what && this.picked && what.name === this.picked.name;
    this.picked = what && !same ? { name: what.name, program: what.program } : null;
    for (const listener of this.listeners) listener(this.picked);
  }

  // How pictures and tables call it.
  names() {
    return this.picked ? [this.picked.name, this.picked.program] : [];
  }
}

// The text of a thread is PROGRAM[TID].
function subject(text) {
  return { name: text, program: text.replace(/\[\d+\]$/, "") };
}

async function startPictures(selection) {
  const specs = JSON.parse(document.getElementById("specs").textContent);
  const places = [...document.querySelectorAll("[data-picture]")];
  const views = await Promise.all(places.map(async (place) => {
    const { view } = await vegaEmbed(place, specs[place.dataset.picture], {
      renderer: "svg", actions: false, tooltip: { theme: "custom" },
    });
    joinPicture(view, specs[place.dataset.picture].usermeta?.names ?? [], selection);
    return view;
  }));
  document.documentElement.dataset.drawn = places.length;
  return views;
}

// `columns` hold names of threads or programs. A picture in which the selected one is not found
// stays as it is.
function joinPicture(view, columns, selection) {
  if (!columns.length) return;
  const known = new Set(view.data("rows").flatMap((row) => columns.map((c) => String(row[c]))));
  view.addEventListener("click", (_, item) => {
    const datum = item?.datum;
    const column = datum &&
      columns.find((c) => typeof datum[c] === "string" && datum[c] !== "other");
    if (column) selection.pick(subject(datum[column]));
  });
  selection.listen(() => {
    const found = selection.names().find((name) => known.has(name));
    view.signal("klogger_picked", found ?? null).runAsync();
  });
}

// A click on a row selects its thread or program; one on a column's head sorts by it.
function startTables(selection) {
  for (const table of document.querySelectorAll("table.answer")) {
    for (const [index, head] of [...table.tHead.rows[0].cells].entries()) {
      if (head.textContent) head.addEventListener("click", () => sortTable(table, index, head));
    }
    const columns = table.dataset.names ? table.dataset.names.split(" ").map(Number) : [];
    if (columns.length) joinTable(table, columns, selection);
  }
}

function joinTable(table, columns, selection) {
  table.classList.add("selects");
  table.tBodies[0].addEventListener("click", (e) => {
    const row = e.target.closest("tr");
    if (!row || getSelection().toString()) return;
    const cell = columns.map((c) => row.cells[c]).find((c) => c === e.target) ??
      row.cells[columns[0]];
    selection.pick(subject(cell.textContent));
  });
  selection.listen(() => {
    const names = selection.names();
    for (const row of table.tBodies[0].rows) {
      row.classList.toggle("picked", columns.some((c) => names.includes(row.cells[c].textContent)));
    }
  });
}

function sortTable(table, index, head) {
  const down = head.getAttribute("aria-sort") !== "descending";
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const value = (row) => row.cells[index].dataset.value ?? row.cells[index].textContent;
  const compare = (a, b) => {
    const [x, y] = [value(a), value(b)];
    const order = x !== "" && y !== "" && !isNaN(x) && !isNaN(y)
      ? Number(x) - Number(y)
      : x.localeCompare(y);
    return down ? -order : order;
  };
  table.tBodies[0].append(...[...table.tBodies[0].rows].sort(compare));
}

// Says what is selected, wherever on the page the reader is.
function startBadge(selection) {
  const badge = document.getElementById("picked");
  selection.listen((picked) => {
    badge.hidden = !picked;
    badge.replaceChildren(`selected: ${picked?.name ?? ""} `, element("button", {
      type: "button", textContent: "clear", onclick: () => selection.pick(null),
    }));
  });
}

async function startPage() {
  const selection = new Selection();
  startTables(selection);
  startBadge(selection);
  const search = startSearch();
  const flames = startFlames();
  const [timeline, views] = await Promise.all([startTimeline(selection), startPictures(selection)]);
  // For the tests, and for use in the browser's console.
  window.klogger = { selection, search, timeline, views, flames };
}
