"use strict";
// Everything foreign goes into the page as text: there is no innerHTML here, and the page's policy allows no other script.
const DATA = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

function make(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined && text !== null) made.textContent = text;
  return made;
}

function count(value) {
  return value === null ? "–" : value.toLocaleString("en-US");
}

function bytes(value) {
  if (value === null) return "–";
  const units = ["B", "KB", "MB", "GB", "TB", "PB"];
  let power = 0;
  while (Math.abs(value) >= 1024 && power < units.length - 1) { value /= 1024; power += 1; }
  return (power ? value.toFixed(1) : String(value)) + " " + units[power];
}

function dollars(value) {
  if (value === null) return "–";
  if (value >= 1000) return "$" + Math.round(value).toLocaleString("en-US");
  if (value >= 0.1 || value === 0) return "$" + value.toFixed(2);
  return value >= 0.0001 ? "$" + value.toFixed(4) : "<$0.0001";
}

function utc(ms) {
  return new Date(ms).toISOString().slice(0, 16).replace("T", " ") + " UTC";
}

function duration(ms) {
  const minutes = Math.round(ms / 60000);
  if (minutes < 60) return minutes + " min";
  if (minutes >= 6 * 60 && minutes < 48 * 60) return Math.round(minutes / 60) + " h";
  if (minutes < 6 * 60) return Math.floor(minutes / 60) + " h" + (minutes % 60 ? " " + (minutes % 60) + " min" : "");
  return Math.round(minutes / 1440) + " days";
}

function when(ms) {
  if (ms === null) return make("span", "soft", "–");
  const away = ms - DATA.made;
  const shown = make("time", "", away > 30000 ? "in " + duration(away) : away < -30000 ? duration(-away) + " ago" : "now");
  shown.dateTime = new Date(ms).toISOString();
  shown.title = utc(ms);
  return shown;
}

function status(name) {
  return make("span", "status s-" + name.replace(/[^A-Z_]/g, ""), name.replaceAll("_", " "));
}

function healthBar(lost) {
  const bar = document.createElementNS(SVG, "svg");
  bar.setAttribute("class", "bar");
  bar.setAttribute("viewBox", "0 0 100 8");
  bar.setAttribute("preserveAspectRatio", "none");
  bar.setAttribute("aria-hidden", "true");
  let at = 0;
  const kept = Math.max(100 - lost[0] - lost[1] - lost[2], 0);
  for (const [name, width] of [["kept", kept], ["lost-files", lost[0]], ["lost-deletes", lost[1]], ["lost-metadata", lost[2]]]) {
    if (!width) continue;
    const part = document.createElementNS(SVG, "rect");
    part.setAttribute("class", name);
    part.setAttribute("x", at);
    part.setAttribute("width", width);
    part.setAttribute("height", 8);
    bar.append(part);
    at += width;
  }
  return bar;
}

function name(table, catalog, under) {
  const cell = make("span", "", table);
  cell.append(make("span", "sub", [catalog, under].filter(Boolean).join(" · ")));
  return cell;
}

function change(before, after, told) {
  if (before === null || after === null) return make("span", "soft", "–");
  const cell = make("span", "", told(before) + " → " + told(after));
  if (before && before !== after) {
    const share = Math.round((100 * (after - before)) / before);
    cell.append(make("span", "sub", (share > 0 ? "+" : "") + share + " %"));
  }
  return cell;
}

// A table that is searched, filtered, sorted and shown a page at a time: ten thousand rows cost as much as fifty.
class Grid {
  constructor(root, rows, columns, sorted) {
    this.root = root;
    // A column of which nothing is known in any row says nothing.
    this.columns = columns.filter((c) => !c.optional || rows.some((row) => c.key(row) !== null));
    this.rows = rows;
    this.texts = rows.map((row) => this.columns.map((c) => (c.text ? c.text(row) : "")).join("\n").toLowerCase());
    this.sorted = sorted;
    this.page = 0;
    this.size = 50;
    this.chosen = new Set();
    this.search = root.querySelector("input[type=search]");
    this.select = root.querySelector("select[data-filter]");
    this.head = root.querySelector("thead tr");
    this.body = root.querySelector("tbody");
    this.said = root.querySelector("[role=status]");
    this.buildHead();
    this.buildChips();
    this.buildSelect();
    this.buildPages();
    this.search.addEventListener("input", () => this.from(0));
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "Escape") { this.search.value = ""; this.from(0); }
    });
    this.from(0);
  }

  buildHead() {
    this.columns.forEach((column, index) => {
      const cell = make("th", column.className || "");
      cell.scope = "col";
      const button = make("button", "", column.title);
      button.type = "button";
      button.addEventListener("click", () => {
        const [at, down] = this.sorted;
        this.sorted = [index, at === index ? !down : Boolean(column.down)];
        this.from(0);
      });
      cell.append(button);
      this.head.append(cell);
    });
  }

  buildChips() {
    const chips = this.root.querySelector(".chips");
    const found = new Map();
    for (const row of this.rows) found.set(row.status, (found.get(row.status) || 0) + 1);
    const order = DATA.order;
    for (const one of [...found.keys()].sort((a, b) => order.indexOf(a) - order.indexOf(b))) {
      const chip = make("button", "", one.replaceAll("_", " "));
      chip.type = "button";
      chip.append(make("b", "", count(found.get(one))));
      chip.setAttribute("aria-pressed", "false");
      chip.addEventListener("click", () => {
        const on = !this.chosen.delete(one);
        if (on) this.chosen.add(one);
        chip.setAttribute("aria-pressed", String(on));
        this.from(0);
      });
      chips.append(chip);
    }
  }

  buildSelect() {
    const found = [...new Set(this.rows.map((row) => row.group))].sort(collator.compare);
    for (const one of found) {
      const option = make("option", "", one || "(none)");
      option.value = "=" + one;
      this.select.append(option);
    }
    this.select.addEventListener("change", () => this.from(0));
  }

  buildPages() {
    const [back, next] = this.root.querySelectorAll(".pages button");
    back.addEventListener("click", () => this.from(this.page - 1));
    next.addEventListener("click", () => this.from(this.page + 1));
    const size = this.root.querySelector("select[data-size]");
    size.addEventListener("change", () => { this.size = Number(size.value); this.from(0); });
    [this.back, this.next] = [back, next];
  }

  found() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const group = this.select.value;
    const found = [];
    this.rows.forEach((row, at) => {
      if (this.chosen.size && !this.chosen.has(row.status)) return;
      if (group && group !== "=" + row.group) return;
      if (words.every((word) => this.texts[at].includes(word))) found.push(row);
    });
    const [index, down] = this.sorted;
    const key = this.columns[index].key;
    const keyed = found.map((row, at) => [key(row), at, row]);
    keyed.sort(([a, i], [b, j]) => {
      if (a === null || b === null) return (a === null) - (b === null) || i - j; // what is not known comes last
      const way = typeof a === "string" ? collator.compare(a, b) : a - b;
      return (down ? -way : way) || i - j;
    });
    return keyed.map((entry) => entry[2]);
  }

  from(page) {
    const found = this.found();
    const last = Math.max(Math.ceil(found.length / this.size) - 1, 0);
    this.page = Math.min(Math.max(page, 0), last);
    const start = this.page * this.size;
    const shown = found.slice(start, start + this.size);
    this.body.replaceChildren(...shown.map((row) => this.line(row)));
    if (!shown.length) {
      const cell = make("td", "empty", this.rows.length ? "Nothing matches." : "Nothing yet.");
      cell.colSpan = this.columns.length;
      const line = make("tr");
      line.append(cell);
      this.body.append(line);
    }
    const range = shown.length ? count(start + 1) + " to " + count(start + shown.length) + " of " : "";
    this.said.textContent = range + count(found.length) + (found.length < this.rows.length ? ", of " + count(this.rows.length) + " in all" : "");
    this.back.disabled = this.page === 0;
    this.next.disabled = this.page === last;
    [...this.head.children].forEach((cell, index) => {
      const [at, down] = this.sorted;
      cell.setAttribute("aria-sort", at === index ? (down ? "descending" : "ascending") : "none");
    });
  }

  line(row) {
    const line = make("tr");
    for (const column of this.columns) {
      const cell = make("td", column.className || "");
      const shown = column.show(row);
      cell.append(shown instanceof Node ? shown : document.createTextNode(shown));
      line.append(cell);
    }
    return line;
  }
}

const ranks = new Map(DATA.order.map((one, at) => [one, at]));
const tables = DATA.tables.map(([catalog, table, tenant, state, sentence, lost, next, files, size, cost]) => ({
  catalog, table, tenant, status: state, sentence, lost, next, files, size, cost, group: tenant,
  points: lost === null ? null : lost[0] + lost[1] + lost[2],
}));
const TABLE_COLUMNS = [
  { title: "Table", className: "name", key: (r) => r.table, show: (r) => name(r.table, r.catalog, r.tenant), text: (r) => r.catalog + " " + r.table + " " + r.tenant },
  { title: "State", key: (r) => ranks.get(r.status), show: (r) => status(r.status), text: (r) => r.status.replaceAll("_", " ") },
  { title: "Why", className: "said", key: (r) => r.sentence, show: (r) => r.sentence, text: (r) => r.sentence },
  {
    title: "Points lost", className: "health", key: (r) => r.points, down: true,
    show: (r) => {
      if (r.lost === null) return make("span", "soft", "not looked at");
      const cell = make("span", "", r.points.toFixed(1));
      cell.title = "files " + r.lost[0].toFixed(1) + ", deletes " + r.lost[1].toFixed(1) + ", metadata " + r.lost[2].toFixed(1);
      cell.append(healthBar(r.lost));
      return cell;
    },
  },
  { title: "Next run", className: "num", key: (r) => r.next, show: (r) => when(r.next) },
  { title: "Files to rewrite", className: "num", key: (r) => r.files, down: true, show: (r) => count(r.files) },
  { title: "Reads", className: "num", optional: true, key: (r) => r.size, down: true, show: (r) => bytes(r.size) },
  { title: "Price", className: "num", optional: true, key: (r) => r.cost, down: true, show: (r) => dollars(r.cost) },
];
const runs = DATA.runs.map(([at, catalog, table, operation, outcome, asked, reason, pd, ad, ps, as, fb, fa, bb, ba]) => ({
  at, catalog, table, operation, status: outcome, asked, reason, pd, ad, ps, as, fb, fa, bb, ba, group: operation,
  off: pd === null || !ad ? null : (100 * (pd - ad)) / ad,
}));
const RUN_COLUMNS = [
  { title: "When", className: "time", key: (r) => r.at, down: true, show: (r) => when(r.at) },
  { title: "Table", className: "name", key: (r) => r.table, show: (r) => name(r.table, r.catalog, r.asked && "asked by " + r.asked), text: (r) => r.catalog + " " + r.table + " " + r.asked },
  { title: "Did", key: (r) => r.operation, show: (r) => r.operation, text: (r) => r.operation },
  { title: "Came to", className: "said", key: (r) => r.status, show: (r) => { const cell = make("span", ""); cell.append(status(r.status)); if (r.reason) cell.append(make("span", "sub", r.reason)); return cell; }, text: (r) => r.status.replaceAll("_", " ") + " " + r.reason },
  { title: "Files", className: "num", key: (r) => (r.fb === null || r.fa === null ? null : r.fb - r.fa), down: true, show: (r) => change(r.fb, r.fa, count) },
  { title: "Size", className: "num", optional: true, key: (r) => (r.bb === null || r.ba === null ? null : r.bb - r.ba), down: true, show: (r) => change(r.bb, r.ba, bytes) },
  { title: "Predicted", className: "num", key: (r) => r.pd, down: true, show: (r) => dollars(r.pd) },
  { title: "Paid", className: "num", key: (r) => r.ad, down: true, show: (r) => dollars(r.ad) },
  { title: "Off by", className: "num", key: (r) => (r.off === null ? null : Math.abs(r.off)), down: true, show: (r) => (r.off === null ? make("span", "soft", "–") : (r.off > 0 ? "+" : "") + r.off.toFixed(0) + " %") },
];
new Grid(document.getElementById("tables"), tables, TABLE_COLUMNS, [3, true]);
new Grid(document.getElementById("runs"), runs, RUN_COLUMNS, [0, true]);
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, select, textarea");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    document.querySelector("#tables input[type=search]").focus();
  }
});
document.documentElement.dataset.ready = "yes";
