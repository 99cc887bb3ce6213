// A result as a tree of joined rows, in which keywords are marked. Texts of data become text nodes, never markup.

const LONG = 280; // characters of a text that are shown at first
const BEFORE = 60; // of them before the first keyword

export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "class") made.className = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

export function resultItem(result) {
  const item = element("li", { class: "result card", "data-id": result.id });
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

// The parts of the score, the largest first, each with what it was given for.
function why(result) {
  const parts = result.explanation.map((one) => {
    const words = (one.why ?? []).filter((each) => each.keyword).map((each) => `${each.keyword} in ${each.attribute}`);
    const about = [one.part, Number(one.value.toPrecision(3)), ...(words.length ? [`(${words.join(", ")})`] : [])];
    return element("li", {}, about.join(" "));
  });
  const made = element("details", { class: "why" }, element("summary", {}, "Why this result"), element("ul", {}, ...parts));
  return made;
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
  const seen = new Set();
  const branch = (at, join) => {
    seen.add(at);
    const item = row(result.tuples[at], join, result.changed?.[result.tuples[at].id] ?? []);
    const below = joined[at].filter(([other]) => !seen.has(other));
    if (below.length) item.append(element("ul", {}, ...below.map(([other, name]) => branch(other, name))));
    return item;
  };
  const list = element("ul", { class: "tree" });
  result.tuples.forEach((_, at) => seen.has(at) || list.append(branch(at, "")));
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
    const shown = text(value, tuple.marks?.[name] ?? []);
    if (changed.includes(name)) shown.classList.add("changed");
    item.append(element("span", { class: "attribute" }, name), shown, " ");
  }
  return item;
}

function text(value, spans) {
  const shown = element("span", { class: "value" });
  if (typeof value !== "string") {
    shown.append(String(value));
    return shown;
  }
  const letters = [...value]; // marks count characters, not the units of JavaScript's strings
  const first = spans.length ? Math.max(0, spans[0][0] - BEFORE) : 0;
  if (letters.length <= LONG) {
    shown.append(...pieces(letters, spans, 0, letters.length));
    return shown;
  }
  const end = Math.min(letters.length, first + LONG);
  shown.append(first ? "… " : "", ...pieces(letters, spans, first, end), end < letters.length ? " … " : "");
  const more = () => shown.replaceChildren(...pieces(letters, spans, 0, letters.length));
  shown.append(element("button", { class: "plain", type: "button", onclick: more }, "show all"));
  return shown;
}

function pieces(letters, spans, first, end) {
  const made = [];
  let at = first;
  for (const [from, to, keyword] of spans) {
    if (from < at || to > end) continue;
    made.push(letters.slice(at, from).join(""));
    made.push(element("mark", { class: `k${keyword % 6}` }, letters.slice(from, to).join("")));
    at = to;
  }
  made.push(letters.slice(at, end).join(""));
  return made;
}

function moment(seconds) {
  if (seconds === null || seconds === undefined) return "";
  const date = new Date(seconds * 1000);
  return Number.isNaN(date.getTime()) ? "" : date.toISOString().slice(0, 19).replace("T", " ");
}
