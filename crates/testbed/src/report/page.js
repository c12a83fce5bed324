"use strict";
// The page is complete without this script, which adds tools to its charts and tables. Names are
// text from files: they are only ever set as text.
(() => {
  const make = (tag, text, name) => {
    const element = document.createElement(tag);
    element.textContent = text;
    if (name) element.className = name;
    return element;
  };
  const button = (text, act) => {
    const element = make("button", text);
    element.type = "button";
    element.addEventListener("click", () => act(element));
    return element;
  };
  const all = (root, selector) => [...root.querySelectorAll(selector)];

  // Charts: hide lines.
  const hide = (charts, hidden) => {
    for (const series of all(charts, ".series")) {
      series.classList.toggle("off", hidden.has(series.dataset.name));
    }
  };
  const addSwitches = (charts, hidden) => {
    const names = [...new Set(all(charts, ".series").map((series) => series.dataset.name))];
    if (names.length < 2) return;
    const tools = make("fieldset", "", "tools");
    tools.append(make("legend", "Show"));
    for (const name of names) {
      const label = make("label", "");
      const box = document.createElement("input");
      box.type = "checkbox";
      box.checked = true;
      box.addEventListener("change", () => {
        if (box.checked) hidden.delete(name); else hidden.add(name);
        hide(charts, hidden);
      });
      label.append(box, name);
      tools.append(label);
    }
    charts.before(tools);
  };

  // Charts: the other scale, which the page has in a template.
  const swap = (figure) => {
    for (const drawing of all(figure, ".drawing")) {
      const template = drawing.querySelector("template");
      const shown = drawing.querySelector("svg");
      if (!template) continue;
      drawing.prepend(template.content.firstElementChild);
      template.content.append(shown);
    }
  };
  const addScale = (figure, charts, hidden, tools) => {
    if (!figure.querySelector("template")) return;
    let pressed = false;
    const press = button("Linear or log", () => {
      pressed = !pressed;
      press.setAttribute("aria-pressed", pressed);
      swap(figure);
      hide(charts, hidden);
    });
    press.setAttribute("aria-pressed", pressed);
    tools.append(press);
  };

  // Charts: save as a file.
  const save = (text, type, name) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  const saveSvg = (figure) => {
    const shown = all(figure, ".drawing").find((one) => one.offsetWidth > 0);
    const copy = shown.querySelector("svg").cloneNode(true);
    const style = document.createElementNS("http://www.w3.org/2000/svg", "style");
    style.textContent = "svg{color:#222;background:#fff}.off{display:none}";
    copy.prepend(style);
    copy.classList.remove("hovered");
    const title = figure.querySelector("figcaption").textContent;
    const name = title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "");
    save(new XMLSerializer().serializeToString(copy), "image/svg+xml", `${name || "chart"}.svg`);
  };

  // Charts: the values of the nearest point.
  const tip = make("div", "", "tip");
  tip.hidden = true;
  tip.setAttribute("aria-hidden", "true");
  document.body.append(tip);
  const nearest = (svg, x, y) => {
    let best = { distance: 32 };
    for (const series of all(svg, ".series:not(.off)")) {
      const line = series.querySelector("polyline");
      if (!line) continue;
      const values = (series.dataset.values || "").split("|");
      [...line.points].forEach((point, at) => {
        const distance = Math.hypot(point.x - x, point.y - y);
        if (distance < best.distance) {
          best = { distance, name: series.dataset.name, value: values[at] };
        }
      });
    }
    return best;
  };
  const show = (svg, event) => {
    const matrix = svg.getScreenCTM();
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix.inverse());
    const { name, value } = nearest(svg, at.x, at.y);
    tip.hidden = name === undefined;
    svg.classList.toggle("hovered", !tip.hidden);
    for (const series of all(svg, ".series")) {
      series.classList.toggle("near", series.dataset.name === name);
    }
    if (tip.hidden) return;
    tip.textContent = `${name}\n${value}`;
    const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
    const below = event.clientY + 18;
    const top = below + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 10 : below;
    tip.style.transform = `translate(${Math.max(left, 4)}px, ${top}px)`;
  };
  const leave = (svg) => {
    tip.hidden = true;
    svg.classList.remove("hovered");
  };
  const addValues = (drawing) => {
    const shown = () => drawing.querySelector("svg");
    drawing.addEventListener("pointermove", (event) => show(shown(), event));
    drawing.addEventListener("pointerdown", (event) => show(shown(), event));
    drawing.addEventListener("pointerleave", () => leave(shown()));
  };

  for (const charts of all(document, ".charts")) {
    const hidden = new Set();
    addSwitches(charts, hidden);
    for (const figure of all(charts, "figure")) {
      const tools = make("div", "", "tools");
      addScale(figure, charts, hidden, tools);
      tools.append(button("Save SVG", () => saveSvg(figure)));
      figure.append(tools);
      all(figure, ".drawing").forEach(addValues);
    }
  }

  // Tables: sort by a column.
  const units = new Map(Object.entries({
    TB: 1e12, GB: 1e9, MB: 1e6, kB: 1e3, h: 3600, min: 60, ms: 1e-3, "µs": 1e-6,
    "Gbit/s": 1e9, "Mbit/s": 1e6, "kbit/s": 1e3,
  }));
  const number = (text) => {
    const long = /^(\d+) h (\d+) min/.exec(text);
    if (long) return 3600 * Number(long[1]) + 60 * Number(long[2]);
    const match = /^([-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?)\s*([^\s,;()]*)/.exec(text);
    return match ? Number(match[1]) * (units.get(match[2]) ?? 1) : NaN;
  };
  const compare = (a, b) => {
    const [x, y] = [number(a), number(b)];
    if (Number.isNaN(x) && Number.isNaN(y)) return a.localeCompare(b);
    if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) ? 1 : -1;
    return x - y;
  };
  const sort = (table, head, column) => {
    const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    all(table, "thead th").forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
    const body = table.tBodies[0];
    const text = (row) => row.cells[column].textContent.replaceAll("\u00a0", " ");
    const rows = [...body.rows].sort((a, b) => sign * compare(text(a), text(b)));
    body.append(...rows);
  };
  const addSort = (table) => {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      if (!head.textContent) return;
      const press = button("", () => sort(table, head, column));
      press.append(...head.childNodes);
      head.append(press);
    });
  };

  // Tables: copy as text.
  const cells = (table) => [...table.rows].map((row) => [...row.cells].map((cell) => cell.textContent.replaceAll("\u00a0", " ")));
  // A spreadsheet takes text that begins with one of these characters for a formula.
  const inert = (text) => (/^[=+\-@\t\r]/.test(text) && Number.isNaN(number(text)) ? `'${text}` : text);
  const csv = (rows) => rows.map((row) => row
    .map((cell) => `"${inert(cell).replaceAll('"', '""')}"`).join(",")).join("\r\n");
  const markdown = ([head, ...rows]) => {
    const line = (row) => `| ${row.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`;
    return [line(head), `|${head.map((_, at) => (at ? "---:|" : "---|")).join("")}`, ...rows.map(line)].join("\n");
  };
  const special = new Map(Object.entries({
    "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}",
    "×": "$\\times$", "±": "$\\pm$", "µ": "$\\mu$", "–": "--", "−": "$-$", "…": "\\ldots{}",
    "<": "$<$", ">": "$>$", "|": "$|$",
  }));
  const latexText = (text) => text.replace(/[\\~^×±µ–−…<>|&%$#_{}]/g, (one) => special.get(one) ?? `\\${one}`);
  const latex = ([head, ...rows]) => {
    const line = (row) => `  ${row.map(latexText).join(" & ")} \\\\`;
    const columns = "l" + "r".repeat(head.length - 1);
    return [`\\begin{tabular}{${columns}}`, "  \\hline", line(head), "  \\hline", ...rows.map(line),
      "  \\hline", "\\end{tabular}"].join("\n");
  };
  const copied = (text) => {
    const area = make("textarea", text);
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  };
  const copy = async (text, pressed) => {
    let done = copied(text);
    if (!done && navigator.clipboard) {
      done = await navigator.clipboard.writeText(text).then(() => true, () => false);
    }
    const before = pressed.textContent;
    pressed.textContent = done ? "Copied" : "Not copied";
    setTimeout(() => { pressed.textContent = before; }, 1200);
  };
  for (const table of all(document, "table")) {
    addSort(table);
    const tools = make("div", "Copy as ", "tools");
    for (const [name, form] of [["CSV", csv], ["Markdown", markdown], ["LaTeX", latex]]) {
      tools.append(button(name, (pressed) => copy(form(cells(table)), pressed)));
    }
    table.parentElement.append(tools);
  }
})();
