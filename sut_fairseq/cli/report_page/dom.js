// Elements and numbers. Whatever a model or a user wrote becomes text, never markup.

const SVG = "http://www.w3.org/2000/svg";

// An element: attributes, among them `class`, `text`, listeners `onclick` and custom properties
// `--x`; then its children.
function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "text") element.textContent = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) element.style.setProperty(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

// A word within a sentence, isolated from it: one that is read from the right must not turn the rest.
function quoted(word) {
  return `“\u2068${word}\u2069”`;
}

function byId(name) {
  return document.getElementById(name);
}

// Radio buttons in a bar, or a list; `changed` is told the number that was chosen.
function choice(label, names, chosen, changed, { list = false } = {}) {
  const group = `choice-${(choice.count = (choice.count ?? 0) + 1)}`;
  const options = names.map((name, number) => {
    const input = make("input", { type: "radio", name: group, value: number });
    input.checked = number === chosen;
    input.addEventListener("change", () => changed(number));
    return make("label", {}, input, make("span", { text: name }));
  });
  const legend = make("legend", { class: list ? "hidden" : null, text: label });
  return make("fieldset", { class: list ? "sentences" : "choice" }, legend, options);
}

function menu(label, names, chosen, changed) {
  const select = make(
    "select",
    { onchange: () => changed(select.selectedIndex) },
    names.map((name) => make("option", { text: name })),
  );
  select.selectedIndex = chosen;
  return make("label", { class: "field" }, `${label} `, select);
}

// A word of a sentence; an unknown one carries a question mark.
function wordSpan([text, unknown], extra = "") {
  const mark = /^(<\/?s>)$/.test(text) ? " mark" : "";
  return make("span", { class: `word${mark}${unknown ? " unknown" : ""} ${extra}`.trim(), text });
}

function spoken([text, unknown]) {
  return unknown ? `${text} (unknown to the model)` : text;
}

const percent = (share, digits = 0) => `${(100 * share).toFixed(digits)} %`;
const decimal = (number, digits = 2) => number.toFixed(digits);

// 11 912 345 -> "11.9 M", and 999 500, which is rounded up, -> "1.00 M"
function short(number) {
  for (const [size, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (number >= 0.9995 * size) return `${(number / size).toPrecision(3)} ${unit}`;
  }
  return String(number);
}

const plural = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
const mean = (numbers) => numbers.reduce((sum, one) => sum + one, 0) / numbers.length;
const clamp = (number, least, most) => Math.min(most, Math.max(least, number));
const title = (name) => name[0].toUpperCase() + name.slice(1);

// Arrow keys, Home and End move within `count` places; gives the new one, or null for other keys.
function moved(event, place, count, [back, forth] = ["ArrowLeft", "ArrowRight"]) {
  const places = { [back]: place - 1, [forth]: place + 1, Home: 0, End: count - 1 };
  if (!(event.key in places) || event.ctrlKey || event.metaKey || event.altKey) return null;
  event.preventDefault();
  return clamp(places[event.key], 0, count - 1);
}

function announce(text) {
  byId("announcer").textContent = text;
}
