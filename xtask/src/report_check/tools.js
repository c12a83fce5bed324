async () => {
  const found = [];
  const expect = (holds, what) => { if (!holds) found.push(what); };
  const all = (root, selector) => [...root.querySelectorAll(selector)];
  const press = (root, text) => {
    const button = all(root, "button").find((one) => one.textContent === text);
    expect(button, `there is no button "${text}"`);
    button?.click();
  };

  // Tables: the column with the widest range of units.
  const table = all(document, "table").at(1);
  const heads = all(table, "thead th").map((head) => head.textContent);
  const column = heads.includes("sent") ? heads.indexOf("sent") : 1;
  const cells = () => [...table.tBodies[0].rows].map((row) => row.cells[column].textContent.replaceAll("\u00a0", " "));
  const before = cells();
  press(table, heads[column]);
  const up = cells();
  press(table, heads[column]);
  expect([...up].sort().join() === [...before].sort().join(), "sorting changed cells");
  const factors = { B: 1, kB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12 };
  const bytes = up.map((text) => parseFloat(text) * (factors[text.split(" ")[1]] ?? 1)).filter(Number.isFinite);
  expect(bytes.every((size, at) => !at || size >= bytes[at - 1]), `"${heads[column]}" is not sorted: ${up}`);
  expect(table.querySelectorAll("[aria-sort]").length === 1, "the sorted column is not marked");

  let copied = "";
  document.execCommand = () => { copied = document.activeElement.value; return true; };
  const tools = table.parentElement;
  for (const [name, start] of [["CSV", '"'], ["Markdown", "| "], ["LaTeX", "\\begin{tabular}"]]) {
    copied = "";
    press(tools, name);
    const lines = copied.split("\n").length;
    expect(copied.startsWith(start) && lines > table.tBodies[0].rows.length, `${name} is "${copied.slice(0, 60)}"`);
  }

  // Charts: hide a line, change the scale, save.
  const charts = all(document, ".charts").at(0);
  const box = charts.previousElementSibling.querySelector("input");
  const hidden = () => all(charts, ".series.off").length;
  box?.click();
  expect(!box || hidden() > 0, "no line is hidden");
  const figure = charts.querySelector("figure");
  const drawn = () => figure.querySelector("svg").outerHTML;
  const shown = drawn();
  press(figure, "Linear or log");
  expect(drawn() !== shown, "the other scale is the same");
  expect(!box || hidden() > 0, "the other scale shows a hidden line");
  press(figure, "Linear or log");
  box?.click();
  expect(hidden() === 0, "a line stays hidden");

  let saved = null;
  let file = "";
  URL.createObjectURL = (blob) => { saved = blob; return "about:blank"; };
  HTMLAnchorElement.prototype.click = function () { file = this.download; };
  press(figure, "Save SVG");
  const svg = saved ? await saved.text() : "";
  const parsed = new DOMParser().parseFromString(svg, "image/svg+xml");
  expect(parsed.documentElement.localName === "svg" && file.endsWith(".svg"), `the saved file is "${svg.slice(0, 60)}"`);

  // Charts: the values of a point.
  const drawing = all(figure, ".drawing").find((one) => one.offsetWidth > 0);
  const line = drawing.querySelector(".series polyline");
  const point = line.points[0].matrixTransform(line.ownerSVGElement.getScreenCTM());
  drawing.dispatchEvent(new PointerEvent("pointermove", { clientX: point.x, clientY: point.y, bubbles: true }));
  const tip = document.querySelector(".tip");
  expect(!tip.hidden && tip.textContent.includes("\n"), `a point shows "${tip.textContent}"`);
  drawing.dispatchEvent(new PointerEvent("pointerleave"));
  expect(tip.hidden, "the values stay");
  return found;
}
