() => {
  const found = [];
  const all = (selector) => [...document.querySelectorAll(selector)];
  const isShown = (element) => element.getClientRects().length > 0
    && getComputedStyle(element).visibility !== "hidden";
  const name = (element) => `<${element.localName}> "${element.textContent.trim().slice(0, 40)}"`;

  // Nothing is wider than the page, and nothing is cut off.
  const page = document.documentElement;
  if (page.scrollWidth > page.clientWidth) {
    found.push(`the page is ${page.scrollWidth} px wide in a window of ${page.clientWidth} px`);
  }
  for (const element of all("main, main *")) {
    if (!isShown(element) || getComputedStyle(element).position === "absolute") continue;
    if (element.closest("thead") && getComputedStyle(element.closest("thead")).position === "absolute") continue;
    const { left, right } = element.getBoundingClientRect();
    if (right > page.clientWidth + 1 || left < -1) {
      found.push(`${name(element)} reaches from ${left.toFixed()} to ${right.toFixed()} px`);
    }
    if (element.scrollWidth > element.clientWidth + 1 && getComputedStyle(element).overflowX !== "visible") {
      found.push(`${name(element)} scrolls sideways`);
    }
  }
  // The texts of a chart are inside of it, and apart from each other.
  for (const svg of all("svg").filter(isShown)) {
    const box = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll("text")].map((text) => [text, text.getBoundingClientRect()]);
    texts.forEach(([text, { left, right, top, bottom }], at) => {
      if (left < box.left - 1 || right > box.right + 1 || top < box.top - 2 || bottom > box.bottom + 2) {
        found.push(`${name(text)} is outside of its chart "${svg.querySelector("title").textContent}"`);
      }
      for (const [other, place] of texts.slice(at + 1)) {
        const across = Math.min(right, place.right) - Math.max(left, place.left);
        const down = Math.min(bottom, place.bottom) - Math.max(top, place.top);
        if (across > 2 && down > 5) {
          found.push(`${name(text)} hides ${name(other)} in "${svg.querySelector("title").textContent}"`);
        }
      }
    });
  }

  // Every text has 12 pixels or more on a screen, and contrast.
  const rgb = (text) => (text.match(/[\d.]+/g) || []).map(Number);
  const light = (colour) => {
    const [r, g, b] = colour.map((part) => part / 255)
      .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const [r, g, b, a = 1] = rgb(getComputedStyle(one).backgroundColor);
      if (a > 0) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const seen = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.textContent.trim() || !isShown(element) || element.closest("script, style, title, desc, template")) continue;
    const style = getComputedStyle(element);
    const inChart = element.closest("svg");
    const scale = inChart ? element.getScreenCTM().a : 1;
    const size = scale * parseFloat(style.fontSize);
    if (!matchMedia("print").matches && size < 12) found.push(`${name(element)} has ${size.toFixed(1)} px`);
    if (matchMedia("print").matches && size < 10.6) found.push(`${name(element)} has ${(0.75 * size).toFixed(1)} pt`);
    // Cells of a heat map have a ground of their own.
    const cell = inChart && element.previousElementSibling?.localName === "rect"
      && !element.previousElementSibling.hasAttribute("fill-opacity")
      && element.previousElementSibling.getAttribute("fill");
    const hex = cell && [1, 3, 5].map((at) => parseInt(cell.slice(at, at + 2), 16));
    const [a, b] = [light(rgb(inChart ? style.fill : style.color)), light(hex || ground(element))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const key = `${element.localName} ${element.className} ${contrast.toFixed(1)}`;
    if (contrast < 4.5 && !seen.has(key)) found.push(`${name(element)} has a contrast of ${contrast.toFixed(1)}`);
    seen.add(key);
  }

  // Names for readers who hear the page.
  if (!page.lang) found.push("the page has no language");
  if (all("h1").length !== 1 || all("main").length !== 1) found.push("the page has not one heading and one main part");
  let level = 0;
  for (const heading of all("h1, h2, h3, h4")) {
    const next = Number(heading.localName[1]);
    if (next > level + 1) found.push(`${name(heading)} skips a level`);
    level = next;
  }
  for (const svg of all("svg")) {
    const title = svg.querySelector(":scope > title")?.textContent.trim();
    if (svg.getAttribute("role") !== "img" || !title) found.push("a chart has no role or no title");
  }
  for (const table of all("table")) {
    if (!table.caption?.textContent.trim()) found.push(`${name(table)} has no caption`);
    for (const head of table.querySelectorAll("th")) if (!head.scope) found.push(`${name(head)} has no scope`);
  }
  for (const control of all("button, input, select, textarea")) {
    const text = control.textContent.trim() || [...control.labels || []].map((one) => one.textContent).join("").trim();
    if (!text) found.push(`a ${control.localName} has no name`);
    const { width, height } = (control.closest("label") || control).getBoundingClientRect();
    if (isShown(control) && (height < 23.5 || width < 23.5)) found.push(`${name(control)} is small`);
  }
  const ids = all("[id]").map((element) => element.id);
  if (new Set(ids).size !== ids.length) found.push("two elements have one id");
  for (const element of all("[aria-labelledby]")) {
    if (!document.getElementById(element.getAttribute("aria-labelledby"))) found.push(`${name(element)} has no label`);
  }
  for (const element of all("*")) {
    for (const { name: attribute } of element.attributes) {
      if (attribute.startsWith("on")) found.push(`${name(element)} has ${attribute}`);
    }
  }
  if (performance.getEntriesByType("resource").length) found.push("the page has loaded resources");
  return [...new Set(found)];
}
