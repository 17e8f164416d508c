// Elements and formats. Text from logs only ever becomes a text node.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child != null && child !== false) element.append(child);
  }
  return element;
}

const html = (name, attributes, ...children) =>
  fill(document.createElement(name), attributes, children);

const svgElement = (name, attributes, ...children) =>
  fill(document.createElementNS(SVG, name), attributes, children);

const byId = (id) => document.getElementById(id);

const formatNumber = (number) => number.toLocaleString("en-US");

const formatCount = (number, noun, plural) =>
  `${formatNumber(number)} ${number === 1 ? noun : plural || `${noun}s`}`;

const UNITS = ["bytes", "KB", "MB", "GB", "TB", "PB"];

function formatSize(bytes) {
  let power = 0;
  while (bytes >= 1024 && power < UNITS.length - 1) {
    bytes /= 1024;
    power += 1;
  }
  return power ? `${bytes.toFixed(1)} ${UNITS[power]}` : `${formatNumber(bytes)} bytes`;
}

// Short labels for an axis.
const formatAxisSize = (bytes) => formatSize(bytes).replace(".0 ", " ").replace("bytes", "B").replace(/^0 B$/, "0");

// Keep 12,345, but shorten 1,613,706.
function formatShort(number) {
  if (number < 100_000) return formatNumber(number);
  const [size, unit] = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]].find(([s]) => number >= s);
  return `${Number((number / size).toPrecision(3))}${unit}`;
}

const day = (time) => time.slice(0, 10);
const minute = (time) => time.slice(0, 16).replace("T", " ");
const moment = (time) => time.slice(0, 19).replace("T", " ");
const timeElement = (time, written = minute) =>
  html("time", {datetime: time, title: `${moment(time)} UTC`}, written(time));

const cut = (text, most) =>
  text.length <= most ? text : `${text.slice(0, Math.ceil(most / 2) - 1)}…${text.slice(-Math.floor(most / 2))}`;

const LOOKS = {
  published: ["good", "✓"], passed: ["good", "✓"],
  rejected: ["bad", "✗"], failed: ["bad", "✗"], error: ["bad", "✗"],
  waiting: ["warn", "…"], missing: ["warn", "?"], warning: ["warn", "!"],
  note: ["plain", "i"], unknown: ["plain", "?"],
};

// A word with a color, and a sign for readers who do not see the color.
function chip(word, title) {
  const [look, sign] = LOOKS[word] || ["plain", ""];
  return html("span", {class: `chip ${look}`, title},
    sign && html("span", {"aria-hidden": "true"}, `${sign} `), word);
}

const code = (text, most = 1000) => html("code", {title: text.length > most ? text : null}, cut(text, most));

function factList(rows) {
  const shown = rows.filter(([, value]) => value != null && value !== "" && value.length !== 0);
  return html("dl", {class: "facts"}, shown.map(([name, value]) =>
    [html("dt", {}, name), html("dd", {}, value)]));
}

const separate = (items, separator = ", ") =>
  items.flatMap((item, index) => (index ? [separator, item] : [item]));
