// A result as a tree of joined rows with marked keywords. Data becomes text nodes, never markup.

const LONG = 280; // characters of a text that are shown at first
const BEFORE = 60; // those of them before the first keyword

export function element(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "class") node.className = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

export function resultItem(result) {
  const item = element("li", { class: "result card", "data-id": result.id, ...(Number.isFinite(result.end) && { "data-end": result.end }) });
  const facts = [];
  if (result.rank !== undefined) facts.push(`#${result.rank}`);
  if (result.score !== undefined) facts.push(`score ${Number(result.score.toPrecision(3))}`);
  facts.push(counted(result.tuples.length, "row"));
  const from = moment(result.start);
  if (from) facts.push(`since ${from}`);
  const until = moment(result.end);
  if (until) facts.push(`until ${until}`);
  const updated = result.op === "~" && moment(result.at);
  if (updated) facts.push(`updated ${updated}`);
  item.append(element("p", { class: "facts dim" }, ...facts.map((fact) => element("span", {}, fact))), tree(result));
  if (result.explanation) item.append(why(result));
  return item;
}

// The parts of the score, each with the keywords that it is for.
function why(result) {
  const parts = result.explanation.map((one) => {
    const words = (one.why ?? []).filter((each) => each.keyword).map((each) => `${each.keyword} in ${each.attribute}`);
    const about = [one.part, Number(one.value.toPrecision(3)), ...(words.length ? [`(${words.join(", ")})`] : [])];
    return element("li", {}, about.join(" "));
  });
  return element("details", { class: "why" }, element("summary", {}, "Why this result"), element("ul", {}, ...parts));
}

export function counted(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

function tree(result) {
  const joined = result.tuples.map(() => []);
  for (const [left, right, name] of result.joins ?? []) {
    joined[left].push([right, name]);
    joined[right].push([left, name]);
  }
  const visited = new Set();
  const branch = (at, join) => {
    visited.add(at);
    const item = row(result.tuples[at], join, result.changed?.[result.tuples[at].id] ?? []);
    const below = joined[at].filter(([other]) => !visited.has(other));
    if (below.length) item.append(element("ul", {}, ...below.map(([other, name]) => branch(other, name))));
    return item;
  };
  const list = element("ul", { class: "tree" });
  result.tuples.forEach((_, at) => visited.has(at) || list.append(branch(at, "")));
  return list;
}

// ``changed``: the attributes that an update has changed.
function row(tuple, join, changed) {
  const item = element("li");
  const relation = element("span", { class: "relation" }, tuple.relation);
  if (join) relation.title = `joined by ${join}`;
  item.append(relation);
  for (const [name, value] of Object.entries(tuple.row)) {
    if (value === null || value === "") continue;
    const cell = text(value, tuple.marks?.[name] ?? []);
    if (changed.includes(name)) cell.classList.add("changed");
    item.append(element("span", { class: "attribute" }, name), cell, " ");
  }
  return item;
}

function text(value, spans) {
  const shown = element("span", { class: "value" });
  if (typeof value !== "string") {
    shown.append(String(value));
    return shown;
  }
  const characters = [...value]; // marks count characters, not the units of JavaScript's strings
  const first = spans.length ? Math.max(0, spans[0][0] - BEFORE) : 0;
  if (characters.length <= LONG) {
    shown.append(...pieces(characters, spans, 0, characters.length));
    return shown;
  }
  const end = Math.min(characters.length, first + LONG);
  shown.append(first ? "… " : "", ...pieces(characters, spans, first, end), end < characters.length ? " … " : "");
  const more = () => shown.replaceChildren(...pieces(characters, spans, 0, characters.length));
  shown.append(element("button", { class: "plain", type: "button", onclick: more }, "show all"));
  return shown;
}

function pieces(characters, spans, first, end) {
  const nodes = [];
  let at = first;
  for (const [from, to, keyword] of spans) {
    if (from < at || to > end) continue;
    nodes.push(characters.slice(at, from).join(""));
    nodes.push(element("mark", { class: `k${keyword % 6}` }, characters.slice(from, to).join("")));
    at = to;
  }
  nodes.push(characters.slice(at, end).join(""));
  return nodes;
}

function moment(seconds) {
  if (seconds === null || seconds === undefined) return "";
  const date = new Date(seconds * 1000);
  return Number.isNaN(date.getTime()) ? "" : date.toISOString().slice(0, 19).replace("T", " ");
}
