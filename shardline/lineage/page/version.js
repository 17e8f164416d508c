// A version: its state, its sizes over time, its snapshots and its features.

const SIGNS = {added: "+", removed: "−", renamed: "→", cast: "~", filled: "~", changed: "~", kept: ""};
const TONES = {added: "good", removed: "bad", kept: "quiet"};

function versionArticle(version, page, visit, printed = false) {
  const history = version.history || {};
  const listed = history.snapshots || [];
  const head = html("header", {},
    html("h2", {}, version.name),
    version.absent ? chip("unknown") : version.snapshots ? chip(version.status || "unknown", "state of the latest snapshot") : null);
  if (version.absent) {
    return html("article", {class: "version"}, head,
      html("p", {class: "notice"}, "Other versions were derived from it, but this root has no log of it."));
  }
  const snapshots = timeline(version, history, listed, visit, printed);
  const parts = [
    head,
    version.doc && html("p", {}, version.doc),
    version.problem && html("p", {class: "notice bad"}, "Corrupt log: ", version.problem,
      " Only its readable entries are shown."),
    about(version, page),
    versionFindings(version, page),
    drawSizePlots(history.sizes || [], (number) => openSnapshot(snapshots, number)),
  ];
  const features = featureTable(version, visit);
  const count = (version.features || []).filter((feature) => feature.change !== "removed").length;
  const tabs = [[`Snapshots (${formatNumber(version.snapshots || 0)})`, snapshots], [`Features (${formatNumber(count)})`, features]];
  return html("article", {class: "version"}, parts,
    printed ? tabs.map(([title, content]) => [html("h3", {}, title), content]) : tabList(version.name, tabs));
}

function inputList(inputs, visit) {
  const [first, second] = inputs.map(([name, number]) => `${name}@${number}`);
  const itself = inputs.length === 2 && first === second;
  const links = (itself ? inputs.slice(1) : inputs).map(([name, number]) => link(name, `${name}@${number}`, visit));
  return itself ? [...links, " with itself"] : separate(links);
}

function about(version, page) {
  const tags = (version.tags || []).map(([name, number]) => `${name} → ${number}`);
  // Most pins end with their snapshot.
  const pins = (version.pins || []).map(([name, number]) =>
    name.endsWith(` on ${number}`) ? `${name.slice(0, -` on ${number}`.length)} → ${number}` : `${name} → ${number}`);
  const [latest, published] = [version.snapshots || 0, version.published];
  return factList([
    ["Latest", latest ? `snapshot ${latest}: ${formatCount(version.records || 0, "record")}, ${formatSize(version.bytes || 0)} in ${formatCount(version.shards || 0, "shard")}` : "no snapshot yet"],
    ["Published", published ? `snapshot ${published}; ${formatNumber(version.published_snapshots || 0)} of ${formatCount(latest, "snapshot")} in all` : "none"],
    ["Operations", (version.operations || []).map(([name, times]) => `${name} ×${formatNumber(times)}`).join(", ")],
    ["Required checks", (version.checks || []).join(", ")],
    ["Log", version.entries ? [`${formatCount(version.entries, "entry", "entries")}, `, timeElement(version.created), " to ", timeElement(version.changed), " UTC"] : ""],
    ["Tags", tags.join(", ")],
    ["Pins", pins.join(", ")],
  ]);
}

function versionFindings(version, page) {
  const own = (page.findings || []).filter((finding) => finding.version === version.name);
  return own.length ? html("ul", {class: "own-findings"}, own.slice(0, 5).map((finding) =>
    html("li", {}, chip(finding.severity), " ", finding.subject && `${finding.subject}: `, finding.detail)),
  own.length > 5 && html("li", {class: "quiet"}, `and ${formatNumber(own.length - 5)} more above`)) : null;
}

function drawSizePlots(sizes, open) {
  if (!sizes.length) return null;
  return html("div", {class: "plots"},
    plot("Records", sizes, {column: 1, written: formatNumber, short: formatShort, base: 1000}, open),
    plot("Size", sizes, {column: 2, written: formatSize, short: formatAxisSize, base: 1024}, open));
}

function tabList(name, tabs) {
  const buttons = [], panels = [];
  const show = (selected) => {
    buttons.forEach((button, index) => {
      button.setAttribute("aria-selected", String(index === selected));
      button.tabIndex = index === selected ? 0 : -1;
      panels[index].hidden = index !== selected;
    });
  };
  const moveFocus = (event) => {
    const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (!step) return;
    const selected = (buttons.indexOf(event.target) + step + tabs.length) % tabs.length;
    show(selected);
    buttons[selected].focus();
  };
  tabs.forEach(([title, content], index) => {
    const [button, panel] = [`tab-${index}`, `panel-${index}`];
    buttons.push(html("button", {type: "button", role: "tab", id: button, "aria-controls": panel, click: () => show(index), keydown: moveFocus}, title));
    panels.push(html("div", {role: "tabpanel", id: panel, "aria-labelledby": button}, content));
  });
  show(0);
  return [html("div", {role: "tablist", class: "tabs", "aria-label": name}, buttons), panels];
}

function timeline(version, history, snapshots, visit, printed) {
  const commits = history.commits || [];
  const rest = (version.snapshots || 0) - snapshots.length;
  const before = history.first_events || [];
  return html("div", {class: "timeline"},
    snapshots.map((snapshot, index) => snapshotRow(snapshot, commits, visit, printed || index === 0)),
    rest > 0 && html("p", {class: "quiet"}, `Latest ${formatNumber(snapshots.length)} of ${formatNumber(version.snapshots)} snapshots. The plots cover all of them. To list the others, run `, code(`shardline log ${version.name} --all`)),
    before.length > 0 && html("div", {class: "before"}, html("h4", {}, "Before the first snapshot"), eventList(before, commits)));
}

function snapshotRow(snapshot, commits, visit, open) {
  const failed = (snapshot.checks || []).filter((check) => check.result === "failed").length;
  return html("details", {class: `snapshot ${snapshot.status}`, open, "data-number": snapshot.number},
    html("summary", {},
      html("span", {class: "number"}, `@${snapshot.number}`), chip(snapshot.status),
      html("b", {}, snapshot.operation), failed > 0 && html("span", {class: "chip bad"}, formatCount(failed, "failed check")),
      timeElement(snapshot.time), html("span", {class: "text"}, snapshot.text)),
    html("div", {class: "inside"},
      factList([
        ["Committed", [timeElement(snapshot.time, moment), " UTC by ", commitText(commits[snapshot.commit || 0])]],
        ["Upstream", inputList(snapshot.inputs || [], visit)],
        ["Sources", (snapshot.sources || []).join(", ") + (snapshot.more_sources ? ` and ${formatNumber(snapshot.more_sources)} more` : "")],
        ["Totals", `${formatCount(snapshot.records, "record")}, ${formatSize(snapshot.bytes)}, ${formatCount(snapshot.shards, "shard")}`],
        ["Checks", checkList(snapshot.checks || [])],
        ["Refs", (snapshot.refs || []).join(", ")],
        ["Content", code(snapshot.content, 20)],
        ["Entry", [`${snapshot.entry}, digest `, code(snapshot.digest, 20)]],
      ]),
      eventList(snapshot.events || [], commits, day(snapshot.time), snapshot.more_events)));
}

function checkList(checks) {
  return checks.map((check) => html("div", {class: "check"}, chip(check.result), " ", check.check,
    check.shards > 0 && ` (${formatCount(check.shards, "shard")})`,
    !check.required && html("span", {class: "quiet"}, " optional"),
    check.detail && html("span", {class: "detail-text"}, ` ${check.detail}`)));
}

function commitText(commit) {
  if (!commit) return "";
  const parts = [commit.host || "unknown host"];
  if (commit.run) parts.push(", run ", code(commit.run, 40));
  if (commit.code) parts.push(", code ", code(commit.code, 40));
  return [...parts, `, shardline ${commit.release}`];
}

const writerText = (commit) => (commit ? `, by ${commit.run ? `run ${commit.run} on ` : ""}${commit.host || "unknown host"}` : "");

function eventList(events, commits, today = "", more = 0) {
  if (!events.length) return null;
  return html("ol", {class: "events"}, events.map((event) =>
    html("li", {title: `entry ${event.entry}${writerText(commits[event.commit || 0])}`},
      timeElement(event.time, day(event.time) === today ? (time) => time.slice(11, 19) : moment), " ", html("b", {}, event.operation), " ", event.text)),
  more > 0 && html("li", {class: "quiet"}, `and ${formatNumber(more)} more`));
}

function openSnapshot(list, number) {
  const row = [...list.children].find((child) => Number(child.dataset.number) <= number);
  if (!row) return;
  const panel = list.closest("[role=tabpanel]");
  if (panel && panel.hidden) byId(panel.getAttribute("aria-labelledby")).click();
  row.open = true;
  row.scrollIntoView({block: "nearest"});
  row.firstChild.focus();
}

function link(name, text, visit) {
  return html("button", {type: "button", class: "link", click: () => visit(name)}, text);
}

function originText(feature, visit) {
  const origin = feature.origin || [];
  const from = origin.map(([name, source]) => html("span", {class: "nowrap"}, link(name, name, visit), `: ${source}`));
  const label = {computed: "computed", cast: "cast", filled: "filled in", renamed: "renamed", kept: "kept"}[feature.how] || "";
  const how = feature.how === feature.change ? "" : label;
  const by = feature.by ? ` by ${feature.by}` : "";
  if (feature.change === "removed") return from.length ? ["was ", ...separate(from)] : "";
  return [how + by, from.length ? " from " : "", ...separate(from.slice(0, 6)), from.length > 6 && ` and ${from.length - 6} more`];
}

function featureTable(version, visit) {
  const features = version.features || [];
  const compared = version.compared || [];
  if (!features.length) return html("p", {class: "quiet"}, version.payload ? `The records are ${version.payload}, without declared features.` : "No features are known.");
  const table = html("table", {},
    html("thead", {}, html("tr", {}, ["", "feature", "type", compared.length ? "origin" : ""].map((title) => html("th", {scope: "col"}, title)))),
    html("tbody", {}, features.map((feature) => html("tr", {class: feature.change},
      html("td", {class: `sign ${TONES[compared.length ? feature.change : "kept"] || "warn"}`, title: compared.length ? feature.change : null}, compared.length ? SIGNS[feature.change] : ""),
      html("td", {}, html("b", {title: feature.doc}, feature.name), compared.length > 0 && feature.change !== "kept" && html("span", {class: "quiet"}, ` ${feature.change}`)),
      html("td", {}, feature.spec, feature.previous && html("div", {class: "quiet"}, `was ${feature.previous}`)),
      html("td", {}, originText(feature, visit))))));
  return html("div", {class: "scrolls"},
    compared.length > 0 && html("p", {class: "quiet"}, "Compared with ", separate(compared.map((name) => link(name, name, visit))), "."),
    table);
}
