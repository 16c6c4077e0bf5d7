// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// A field that shows only what has all the words in it: answers, by their texts, and rows of
// tables. `/` goes to the field, Enter to the next answer that is left, Escape shows everything.

class Search {
  constructor(sections) {
    this.sections = sections.map((section) => ({ section, rows: rowsOf(section) }));
    this.at = -1;
    this.field = element("input", {
      type: "search", placeholder: "Search (press /)", id: "search", autocomplete: "off",
    });
    this.field.setAttribute("aria-label", "Show only answers and rows with these words");
    this.said = element("span", { className: "found" });
    this.said.setAttribute("role", "status");
    this.field.addEventListener("input", () => this.show());
    this.field.addEventListener("keydown", (e) => this.press(e));
    document.addEventListener("keydown", (e) => this.pressAnywhere(e));
  }

  show() {
    const words = this.field.value.toLowerCase().split(/\s+/).filter(Boolean);
    this.at = -1;
    let [answers, rows] = [0, 0];
    for (const { section, rows: all } of this.sections) {
      const title = textOf(section.querySelectorAll("h1, h2, .question"));
      const texts = title + textOf(section.querySelectorAll(":scope > p"));
      const missing = words.filter((word) => !title.includes(word));
      // What the title has, no row needs to have.
      const found = all.filter(({ text }) => missing.every((word) => text.includes(word)));
      for (const { row } of all) row.hidden = missing.length > 0;
      for (const { row } of found) row.hidden = false;
      const said = words.every((word) => texts.includes(word));
      section.hidden = missing.length > 0 && !found.length && !said;
      if (!section.hidden) answers++;
      if (missing.length) rows += found.length;
    }
    const counted = rows ? `, ${rows} row${rows === 1 ? "" : "s"}` : "";
    this.said.textContent = !words.length
      ? ""
      : answers ? `${answers} answer${answers === 1 ? "" : "s"}${counted}` : "not found";
  }

  press(e) {
    if (e.key === "Escape") {
      this.field.value = "";
      this.show();
      this.field.blur();
    } else if (e.key === "Enter") {
      const left = this.sections.filter(({ section }) => !section.hidden);
      if (!left.length) return;
      this.at = (this.at + (e.shiftKey ? left.length - 1 : 1)) % left.length;
      left[this.at].section.scrollIntoView({ block: "start" });
    }
  }

  pressAnywhere(e) {
    const typing = e.target.closest?.("input, textarea, select, [contenteditable]");
    if (e.key !== "/" || typing || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    this.field.focus();
    this.field.select();
  }
}

function textOf(parts) {
  return [...parts].map((part) => part.textContent).join(" ").toLowerCase();
}

function rowsOf(section) {
  return [...section.querySelectorAll("tbody tr")]
    .map((row) => ({ row, text: row.textContent.toLowerCase() }));
}

// In the list of contents, if there is more than one answer to look through.
function startSearch() {
  const sections = [...document.querySelectorAll("main > section")];
  if (sections.length < 2) return null;
  const search = new Search(sections);
  const box = element("div", { className: "search" });
  box.append(search.field, search.said);
  document.querySelector("nav").before(box);
  return search;
}
