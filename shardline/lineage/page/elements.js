// Elements, and numbers as people read them. Text from logs only ever becomes text.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, attributes, children) {
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

const made = (name, attributes, ...children) =>
  filled(document.createElement(name), attributes, children);

const drawn = (name, attributes, ...children) =>
  filled(document.createElementNS(SVG, name), attributes, children);

const byId = (id) => document.getElementById(id);

const grouped = (number) => number.toLocaleString("en-US");

const counted = (number, what, many) =>
  `${grouped(number)} ${number === 1 ? what : many || `${what}s`}`;

const UNITS = ["bytes", "KB", "MB", "GB", "TB", "PB"];

function sized(bytes) {
  let power = 0;
  while (bytes >= 1024 && power < UNITS.length - 1) {
    bytes /= 1024;
    power += 1;
  }
  return power ? `${bytes.toFixed(1)} ${UNITS[power]}` : `${grouped(bytes)} bytes`;
}

// On an axis there is little room.
const scaled = (bytes) => sized(bytes).replace(".0 ", " ").replace("bytes", "B").replace(/^0 B$/, "0");

// 12,345 is short enough; 1,613,706 is not.
function rounded(number) {
  if (number < 100_000) return grouped(number);
  const [size, unit] = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]].find(([s]) => number >= s);
  return `${Number((number / size).toPrecision(3))}${unit}`;
}

const day = (time) => time.slice(0, 10);
const minute = (time) => time.slice(0, 16).replace("T", " ");
const moment = (time) => time.slice(0, 19).replace("T", " ");
const timed = (time, written = minute) =>
  made("time", {datetime: time, title: `${moment(time)} UTC`}, written(time));

const cut = (text, most) =>
  text.length <= most ? text : `${text.slice(0, Math.ceil(most / 2) - 1)}…${text.slice(-Math.floor(most / 2))}`;

const LOOKS = {
  published: ["good", "✓"], passed: ["good", "✓"],
  rejected: ["bad", "✗"], failed: ["bad", "✗"], error: ["bad", "✗"],
  waiting: ["warn", "…"], missing: ["warn", "?"], warning: ["warn", "!"],
  note: ["plain", "i"], unknown: ["plain", "?"],
};

// A word with its colour and its sign, so that nobody needs to see the colour.
function chip(word, title) {
  const [look, sign] = LOOKS[word] || ["plain", ""];
  return made("span", {class: `chip ${look}`, title},
    sign && made("span", {"aria-hidden": "true"}, `${sign} `), word);
}

const code = (text, most = 1000) => made("code", {title: text.length > most ? text : null}, cut(text, most));

function facts(rows) {
  const told = rows.filter(([, value]) => value != null && value !== "" && value.length !== 0);
  return made("dl", {class: "facts"}, told.map(([name, value]) =>
    [made("dt", {}, name), made("dd", {}, value)]));
}

const separated = (items, separator = ", ") =>
  items.flatMap((item, at) => (at ? [separator, item] : [item]));
