"use strict";
(() => {
  const $ = (id) => document.getElementById(`browse-${id}`);
  const make = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "class") node.className = value; else node.setAttribute(name, value);
    }
    node.append(...children);
    return node;
  };

  // ---- tables: a click or Enter on a column's head sorts by it, again turns it round
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    const body = table.tBodies[0];
    heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
      const numeric = head.classList.contains("right");
      const rows = [...body.rows];
      rows.sort((a, b) => {
        const [x, y] = [value(a), value(b)];
        // empty cells come last, whichever way
        if (x === "" || y === "") return (x === "") - (y === "");
        const order = numeric ? Number(x) - Number(y) : x.localeCompare(y, "en", { numeric: true });
        return down ? -order : order;
      });
      body.append(...rows);
    }));
  }

  // ---- the browser of samples
  const holder = $("data");
  if (!holder) return;
  const { groups } = JSON.parse(holder.textContent);
  let pictures = null;  // parsed when first needed
  const names = JSON.parse($("names").textContent);
  const nameOf = (method) => names[method] ?? method;
  const state = { group: groups[0], rows: [], at: 0, order: 0, overlay: false };

  const pickGroup = $("group"), pickOther = $("other"), pickFilter = $("filter"), search = $("search");
  const list = $("list"), shown = $("shown"), count = $("count"), pickOrder = $("order"), overlay = $("overlay");
  groups.forEach((group, index) => pickGroup.append(make("option", { value: index }, group.title)));

  function openGroup() {
    state.group = groups[Number(pickGroup.value)];
    const { methods, orders } = state.group;
    const before = pickOther.value;
    pickOther.replaceChildren(...methods.slice(1).map((m) => make("option", { value: m }, nameOf(m))));
    pickOther.value = methods.includes(before) ? before : methods.includes("agd") ? "agd" : methods[1];
    pickOrder.replaceChildren(...orders.map((order, index) =>
      make("option", { value: index }, index ? `order ${index + 1}` : "order 1 (as listed)")));
    state.order = 0;
    const others = pickFilter.querySelectorAll("option[data-with]");
    const label = () => others.forEach((o) => {
      o.textContent = o.dataset.with.replaceAll("%a", nameOf(methods[0])).replaceAll("%b", nameOf(pickOther.value));
    });
    label();
    pickOther.onchange = () => { label(); filter(); };
    filter();
  }

  function right(sample, method, order) {
    return sample.picks[state.group.methods.indexOf(method)][order] === sample.answer;
  }

  function filter() {
    const first = state.group.methods[0], other = pickOther.value, words = search.value.trim().toLowerCase();
    const keep = {
      all: () => true,
      gained: (s) => !right(s, first, state.order) && right(s, other, state.order),
      lost: (s) => right(s, first, state.order) && !right(s, other, state.order),
      both_wrong: (s) => !right(s, first, state.order) && !right(s, other, state.order),
      moves: (s) => new Set(s.picks[state.group.methods.indexOf(first)]).size > 1,
      overlay: (s) => Boolean(s.patches),
    }[pickFilter.value];
    state.rows = state.group.samples.filter((s) =>
      keep(s) && (!words || s.caption.toLowerCase().includes(words) || s.id.toLowerCase().includes(words)));
    state.at = 0;
    count.textContent = `${state.rows.length} of ${state.group.samples.length} samples`;
    const entries = state.rows.map((sample, index) => {
      const marks = [first, other].map((m) => `${nameOf(m)} ${right(sample, m, state.order) ? "\u2713" : "\u2717"}`);
      const entry = make("li", { role: "option", id: `sample-${index}`, "aria-selected": "false" },
        make("div", {}, sample.caption), make("div", { class: "marks" }, marks.join("  \u00b7  ")));
      entry.addEventListener("click", () => { select(index); list.focus({ preventScroll: true }); });
      return entry;
    });
    list.replaceChildren(...entries);
    select(0);
  }

  function select(index) {
    list.children[state.at]?.setAttribute("aria-selected", "false");
    state.at = Math.max(0, Math.min(index, state.rows.length - 1));
    const entry = list.children[state.at];
    if (entry) {
      entry.setAttribute("aria-selected", "true");
      list.setAttribute("aria-activedescendant", entry.id);
      const top = entry.offsetTop - list.offsetTop;
      if (top < list.scrollTop) list.scrollTop = top;
      else if (top + entry.offsetHeight > list.scrollTop + list.clientHeight) {
        list.scrollTop = top + entry.offsetHeight - list.clientHeight;
      }
    } else list.removeAttribute("aria-activedescendant");
    show();
  }

  function meter(label, kind, value) {
    const bar = make("i", { class: kind });
    bar.style.width = `${Math.min(100, value)}%`;
    return make("div", { class: "meter" }, make("span", {}, label), make("div", { class: "track" }, bar),
      make("b", {}, `${value.toFixed(1)}%`));
  }

  function paint(canvas, number, patches) {
    pictures ??= JSON.parse($("pictures").textContent);
    const image = new Image();
    image.onload = () => {
      const side = canvas.width, scale = side / Math.max(image.width, image.height);
      const [w, h] = [image.width * scale, image.height * scale], [x, y] = [(side - w) / 2, (side - h) / 2];
      const pen = canvas.getContext("2d");
      pen.imageSmoothingEnabled = scale < 1;
      pen.drawImage(image, x, y, w, h);
      if (patches) {
        pen.fillStyle = "rgba(255,255,255,0.35)";
        pen.fillRect(x, y, w, h);
        patches.forEach((row, r) => row.forEach((value, c) => {
          pen.fillStyle = `rgba(213,60,0,${(0.85 * Math.sqrt(value)).toFixed(3)})`;
          pen.fillRect(x + c * w / row.length, y + r * h / patches.length, w / row.length, h / patches.length);
        }));
      }
      canvas.dataset.drawn = "yes";
    };
    image.src = pictures[number];
  }

  function show() {
    const sample = state.rows[state.at];
    if (!sample) {
      shown.replaceChildren(make("p", { class: "hint" }, "No sample is left by these filters."));
      return;
    }
    const { methods, identifiers, orders } = state.group, order = orders[state.order];
    // patches were seen under the first order alone
    const patched = overlay.checked && state.order === 0 && sample.patches;
    const cards = order.map((candidate, position) => {
      const canvas = make("canvas", { width: 308, height: 308, role: "img",
        "aria-label": `picture at position ${identifiers[position]}` });
      paint(canvas, sample.pictures[candidate], patched && sample.patches[candidate]);
      const who = methods.filter((_, m) => sample.picks[m][state.order] === candidate).map(nameOf);
      const isAnswer = candidate === sample.answer;
      return make("div", { class: isAnswer ? "card answer" : "card" },
        make("div", { class: "head" }, make("span", {}, identifiers[position]),
          make("span", {}, isAnswer ? "the answer" : "")),
        canvas,
        meter("says", "said", sample.said[state.order][position]),
        meter("looks", "looked", sample.looked[state.order][position]),
        meter("purified", "purified", sample.purified[state.order][position]),
        make("div", { class: "who" }, who.length ? `picked by ${who.join(", ")}` : ""));
    });
    const head = make("tr", {}, make("th", { scope: "col" }, "picks the picture at"),
      ...orders.map((_, index) => make("th", { scope: "col" }, `order ${index + 1}`)));
    const rows = methods.map((method, m) => make("tr", {}, make("th", { scope: "row" }, nameOf(method)),
      ...orders.map((one, index) => {
        const pick = sample.picks[m][index], good = pick === sample.answer;
        const place = pick < 0 ? "none" : identifiers[one.indexOf(pick)];
        return make("td", { class: good ? "hit" : "miss" }, `${place} ${good ? "\u2713" : "\u2717"}`);
      })));
    shown.replaceChildren(
      make("p", { class: "caption" }, `\u201c${sample.caption}\u201d`),
      make("p", { class: "hint" }, `${sample.id}, sample ${state.at + 1} of ${state.rows.length}`
        + (overlay.checked && !patched ? "; no patches were kept for this sample and order" : "")),
      make("div", { class: "cards" }, ...cards),
      make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)));
  }

  pickGroup.addEventListener("change", openGroup);
  pickFilter.addEventListener("change", filter);
  search.addEventListener("input", filter);
  pickOrder.addEventListener("change", () => {
    const id = state.rows[state.at]?.id;
    state.order = Number(pickOrder.value);
    filter();
    const again = state.rows.findIndex((s) => s.id === id);
    if (again > 0) select(again);
  });
  overlay.addEventListener("change", show);
  list.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -1e9, End: 1e9 }[event.key];
    if (step) { event.preventDefault(); select(state.at + step); return; }
    const turn = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (turn) {
      event.preventDefault();
      const number = state.group.orders.length;
      pickOrder.value = (state.order + turn + number) % number;
      pickOrder.dispatchEvent(new Event("change"));
    }
    if (event.key === "o") { overlay.checked = !overlay.checked; show(); }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !/^(input|select|textarea)$/i.test(event.target.tagName)) {
      event.preventDefault();
      search.focus();
    }
  });
  openGroup();
})();
