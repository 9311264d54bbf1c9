// What is wrong with a page: lines. The rules are those of Lighthouse's accessibility audits that can be computed here.
(() => {
  const wrong = [];
  const name = (element) => `${element.tagName.toLowerCase()} "${element.textContent.trim().slice(0, 40)}"`;
  const rgba = (text) => {
    const parts = text.match(/[\d.]+/g).map(Number);
    return [parts[0], parts[1], parts[2], parts.length > 3 ? parts[3] : 1];
  };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const back = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.push(rgba(getComputedStyle(at).backgroundColor));
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    return layers.reverse().reduce((below, top) => over(top, below), dark ? [18, 18, 18, 1] : [255, 255, 255, 1]);
  };
  const light = (color) => {
    const [r, g, b] = color.map((part) => part / 255).map((part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const texts = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (node.textContent.trim() !== "") texts.add(node.parentElement);
  }
  for (const element of texts) {
    const style = getComputedStyle(element);
    if (style.visibility === "hidden" || element.getClientRects().length === 0) continue;
    const below = back(element);
    const [one, two] = [light(over(rgba(style.color), below)), light(below)];
    const contrast = (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
    if (contrast < 4.5) wrong.push(`contrast ${contrast.toFixed(2)}: ${name(element)}`);
  }
  if (document.documentElement.lang === "") wrong.push("no language");
  if (document.title === "") wrong.push("no title");
  if (document.querySelectorAll("h1").length !== 1) wrong.push("not one h1");
  if (!document.querySelector("meta[name=viewport]")) wrong.push("no viewport");
  for (const input of document.querySelectorAll("input:not([type=hidden])")) {
    if (input.labels.length === 0 && !input.getAttribute("aria-label")) wrong.push(`no label: ${input.outerHTML}`);
  }
  for (const element of document.querySelectorAll("a, button, summary")) {
    if (element.textContent.trim() === "") wrong.push(`no text: ${element.outerHTML}`);
  }
  for (const picture of document.querySelectorAll("[role=img]")) {
    if (!picture.getAttribute("aria-label")) wrong.push("a picture without a label");
  }
  for (const table of document.querySelectorAll("table")) {
    if (!table.caption) wrong.push("a table without a caption");
  }
  for (const cell of document.querySelectorAll("th:not([scope])")) wrong.push(`no scope: ${name(cell)}`);
  const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
  for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) wrong.push(`id ${id} twice`);
  for (const attribute of ["aria-labelledby", "for"]) {
    for (const element of document.querySelectorAll(`[${attribute}]`)) {
      if (!document.getElementById(element.getAttribute(attribute))) wrong.push(`${attribute} of nothing: ${element.getAttribute(attribute)}`);
    }
  }
  for (const link of document.querySelectorAll('a[href^="#"]')) {
    if (!document.getElementById(link.hash.slice(1))) wrong.push(`a link to nothing: ${link.hash}`);
  }
  const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  if (wide > 0) wrong.push(`${wide} pixels wider than the screen`);
  return [...new Set(wrong)];
})()
