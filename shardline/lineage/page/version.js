// One version: how it stands, its size over time, its snapshots, its fields.

const SIGNS = {added: "+", removed: "−", renamed: "→", cast: "~", filled: "~", changed: "~", kept: ""};
const TONES = {added: "good", removed: "bad", kept: "quiet"};

function versionArticle(version, page, visit, printed = false) {
  const history = version.history || {};
  const moments = history.snapshots || [];
  const head = made("header", {},
    made("h2", {}, version.name),
    version.absent ? chip("unknown") : version.snapshots ? chip(version.status || "unknown", "of the newest snapshot") : null);
  if (version.absent) {
    return made("article", {class: "version"}, head,
      made("p", {class: "notice"}, "Others were made of it, but there is no log of it in this root."));
  }
  const snapshots = timeline(version, history, moments, visit, printed);
  const parts = [
    head,
    version.doc && made("p", {}, version.doc),
    version.problem && made("p", {class: "notice bad"}, "Its log cannot be trusted: ", version.problem,
      " What is told here is what can be read."),
    about(version, page),
    ownFindings(version, page),
    sizePlots(history.sizes || [], (number) => openSnapshot(snapshots, number)),
  ];
  const fields = fieldTable(version, visit);
  const many = (version.features || []).filter((one) => one.change !== "removed").length;
  const tabs = [[`Snapshots (${grouped(version.snapshots || 0)})`, snapshots], [`Fields (${grouped(many)})`, fields]];
  return made("article", {class: "version"}, parts,
    printed ? tabs.map(([title, content]) => [made("h3", {}, title), content]) : tabbed(version.name, tabs));
}

function inputList(inputs, visit) {
  const [first, second] = inputs.map(([name, number]) => `${name}@${number}`);
  const itself = inputs.length === 2 && first === second;
  const links = (itself ? inputs.slice(1) : inputs).map(([name, number]) => link(name, `${name}@${number}`, visit));
  return itself ? [...links, " with itself"] : separated(links);
}

function about(version, page) {
  const tags = (version.tags || []).map(([name, number]) => `${name} → ${number}`);
  // Most pins end with the snapshot that they hold.
  const pins = (version.pins || []).map(([name, number]) =>
    name.endsWith(` on ${number}`) ? `${name.slice(0, -` on ${number}`.length)} → ${number}` : `${name} → ${number}`);
  const [here, of] = [version.snapshots || 0, version.published];
  return facts([
    ["Newest", here ? `snapshot ${here}: ${counted(version.records || 0, "record")}, ${sized(version.bytes || 0)} in ${counted(version.shards || 0, "shard")}` : "no snapshot yet"],
    ["Published", of ? `snapshot ${of}; ${grouped(version.published_snapshots || 0)} of ${counted(here, "snapshot")} in all` : "none"],
    ["Made by", (version.operations || []).map(([name, times]) => `${name} ×${grouped(times)}`).join(", ")],
    ["Needs", (version.checks || []).join(", ")],
    ["Log", version.entries ? [`${counted(version.entries, "entry", "entries")}, `, timed(version.created), " to ", timed(version.changed), " UTC"] : ""],
    ["Tags", tags.join(", ")],
    ["Pins", pins.join(", ")],
  ]);
}

function ownFindings(version, page) {
  const own = (page.findings || []).filter((one) => one.version === version.name);
  return own.length ? made("ul", {class: "own-findings"}, own.slice(0, 5).map((one) =>
    made("li", {}, chip(one.severity), " ", one.subject && `${one.subject}: `, one.detail)),
  own.length > 5 && made("li", {class: "quiet"}, `and ${grouped(own.length - 5)} more, above`)) : null;
}

function sizePlots(sizes, open) {
  if (!sizes.length) return null;
  return made("div", {class: "plots"},
    plot("Records", sizes, {column: 1, written: grouped, short: rounded, base: 1000}, open),
    plot("Size", sizes, {column: 2, written: sized, short: scaled, base: 1024}, open));
}

function tabbed(name, tabs) {
  const buttons = [], panels = [];
  const show = (at) => {
    buttons.forEach((one, place) => {
      one.setAttribute("aria-selected", String(place === at));
      one.tabIndex = place === at ? 0 : -1;
      panels[place].hidden = place !== at;
    });
  };
  const moved = (event) => {
    const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (!step) return;
    const at = (buttons.indexOf(event.target) + step + tabs.length) % tabs.length;
    show(at);
    buttons[at].focus();
  };
  tabs.forEach(([title, content], at) => {
    const [button, panel] = [`tab-${at}`, `panel-${at}`];
    buttons.push(made("button", {type: "button", role: "tab", id: button, "aria-controls": panel, click: () => show(at), keydown: moved}, title));
    panels.push(made("div", {role: "tabpanel", id: panel, "aria-labelledby": button}, content));
  });
  show(0);
  return [made("div", {role: "tablist", class: "tabs", "aria-label": name}, buttons), panels];
}

function timeline(version, history, moments, visit, printed) {
  const makers = history.commits || [];
  const left = (version.snapshots || 0) - moments.length;
  const before = history.first_events || [];
  return made("div", {class: "timeline"},
    moments.map((one, at) => snapshotRow(one, makers, visit, printed || at === 0)),
    left > 0 && made("p", {class: "quiet"}, `The newest ${grouped(moments.length)} of ${grouped(version.snapshots)} snapshots are listed here, to keep this file small; the plots show all of them. For the others: `, code(`shardline log ${version.name} --all`)),
    before.length > 0 && made("div", {class: "before"}, made("h4", {}, "Before the first snapshot"), eventList(before, makers)));
}

function snapshotRow(one, makers, visit, open) {
  const bad = (one.checks || []).filter((check) => check.result === "failed").length;
  return made("details", {class: `snapshot ${one.status}`, open, "data-number": one.number},
    made("summary", {},
      made("span", {class: "number"}, `@${one.number}`), chip(one.status),
      made("b", {}, one.operation), bad > 0 && made("span", {class: "chip bad"}, counted(bad, "failed check")),
      timed(one.time), made("span", {class: "words"}, one.text)),
    made("div", {class: "inside"},
      facts([
        ["Made", [timed(one.time, moment), " UTC by ", makerWords(makers[one.commit || 0])]],
        ["Made of", inputList(one.inputs || [], visit)],
        ["Sources", (one.sources || []).join(", ") + (one.more_sources ? ` and ${grouped(one.more_sources)} more` : "")],
        ["Holds", `${counted(one.records, "record")}, ${sized(one.bytes)}, ${counted(one.shards, "shard")}`],
        ["Checks", checkList(one.checks || [])],
        ["Kept by", (one.refs || []).join(", ")],
        ["Content", code(one.content, 20)],
        ["Entry", [`${one.entry}, digest `, code(one.digest, 20)]],
      ]),
      eventList(one.events || [], makers, day(one.time), one.more_events)));
}

function checkList(checks) {
  return checks.map((one) => made("div", {class: "check"}, chip(one.result), " ", one.check,
    one.shards > 0 && ` (${counted(one.shards, "shard")})`,
    !one.required && made("span", {class: "quiet"}, " not needed to publish"),
    one.detail && made("span", {class: "detail-text"}, ` ${one.detail}`)));
}

function makerWords(maker) {
  if (!maker) return "";
  const told = [maker.host || "an unnamed host"];
  if (maker.run) told.push(", run ", code(maker.run, 40));
  if (maker.code) told.push(", code ", code(maker.code, 40));
  return [...told, `, shardline ${maker.release}`];
}

const madeBy = (maker) => (maker ? `, by ${maker.run ? `run ${maker.run} on ` : ""}${maker.host || "an unnamed host"}` : "");

function eventList(events, makers, today = "", more = 0) {
  if (!events.length) return null;
  return made("ol", {class: "events"}, events.map((one) =>
    made("li", {title: `entry ${one.entry}${madeBy(makers[one.commit || 0])}`},
      timed(one.time, day(one.time) === today ? (time) => time.slice(11, 19) : moment), " ", made("b", {}, one.operation), " ", one.text)),
  more > 0 && made("li", {class: "quiet"}, `and ${grouped(more)} more`));
}

function openSnapshot(list, number) {
  const row = [...list.children].find((one) => Number(one.dataset.number) <= number);
  if (!row) return;
  const panel = list.closest("[role=tabpanel]");
  if (panel && panel.hidden) byId(panel.getAttribute("aria-labelledby")).click();
  row.open = true;
  row.scrollIntoView({block: "nearest"});
  row.firstChild.focus();
}

function link(name, words, visit) {
  return made("button", {type: "button", class: "link", click: () => visit(name)}, words);
}

function originWords(field, visit) {
  const origin = field.origin || [];
  const from = origin.map(([name, feature]) => made("span", {class: "nowrap"}, link(name, name, visit), `: ${feature}`));
  const words = {computed: "computed", cast: "cast", filled: "filled in", renamed: "renamed", kept: "taken over"}[field.how] || "";
  const how = field.how === field.change ? "" : words;
  const by = field.by ? ` by ${field.by}` : "";
  if (field.change === "removed") return from.length ? ["was ", ...separated(from)] : "";
  return [how + by, from.length ? " from " : "", ...separated(from.slice(0, 6)), from.length > 6 && ` and ${from.length - 6} more`];
}

function fieldTable(version, visit) {
  const fields = version.features || [];
  const compared = version.compared || [];
  if (!fields.length) return made("p", {class: "quiet"}, version.payload ? `Its records are ${version.payload}, without declared fields.` : "No fields are known.");
  const table = made("table", {},
    made("thead", {}, made("tr", {}, ["", "field", "type", compared.length ? "where it comes from" : ""].map((one) => made("th", {scope: "col"}, one)))),
    made("tbody", {}, fields.map((one) => made("tr", {class: one.change},
      made("td", {class: `sign ${TONES[compared.length ? one.change : "kept"] || "warn"}`, title: compared.length ? one.change : null}, compared.length ? SIGNS[one.change] : ""),
      made("td", {}, made("b", {title: one.doc}, one.name), compared.length > 0 && one.change !== "kept" && made("span", {class: "quiet"}, ` ${one.change}`)),
      made("td", {}, one.spec, one.previous && made("div", {class: "quiet"}, `was ${one.previous}`)),
      made("td", {}, originWords(one, visit))))));
  return made("div", {class: "scrolls"},
    compared.length > 0 && made("p", {class: "quiet"}, "Compared with ", separated(compared.map((name) => link(name, name, visit))), "."),
    table);
}
