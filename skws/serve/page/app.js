// The page: searches, saved searches, and the one that is followed.

import { completing } from "./complete.js";
import { RefusedError, ask, follow, remember } from "./streams.js";
import { counted, element, resultItem } from "./tree.js";

const at = (id) => document.getElementById(id);
const REFRESH = 2000; // milliseconds between searches that are kept up to date
const MOST = 500; // results of a followed search on the page

let following = null; // {name, stop}
let timer = 0;
let asked = ""; // the query whose results are shown
let number = 0; // of the latest search: answers to earlier ones are dropped

function say(text) {
  if (at("status").textContent !== text) at("status").textContent = text;
}

function fault(place, error) {
  if (error instanceof RefusedError && error.status === 401) askForToken(error);
  else at(place).textContent = error.message;
}

function askForToken(error) {
  const form = at("token-form");
  at("token-fault").textContent = form.hidden ? "" : error.message;
  form.hidden = false;
  at("layout").hidden = true;
  at("token").focus();
}

// Results

function show(items, { keep = false } = {}) {
  const list = at("results");
  const known = new Map([...list.children].map((item) => [item.dataset.id, item]));
  const made = items.map((result) => {
    const item = known.get(result.id) ?? resultItem(result);
    item.classList.toggle("new", keep && !known.has(result.id));
    return item;
  });
  list.replaceChildren(...made);
  at("empty").hidden = made.length > 0;
  return made.filter((item) => item.classList.contains("new")).length;
}

async function search({ again = false } = {}) {
  const query = at("query").value.trim();
  if (!query) return;
  const mine = ++number;
  if (!again) {
    stopFollowing();
    at("search-fault").textContent = "";
    say("searching…");
  }
  try {
    const found = await ask("POST", "search", { query, limit: Number(at("limit").value), marks: true });
    if (mine !== number || following) return;
    const fresh = show(found.results, { keep: again && query === asked });
    asked = query;
    at("results-title").textContent = `Results for ${query}`;
    const parts = [counted(found.found, "result")];
    if (found.found > found.results.length) parts.push(`the best ${found.results.length} are shown`);
    if (!again) parts.push(`${Math.max(1, Math.round(found.seconds * 1000))} ms`);
    if (!found.complete) parts.push(`only those of up to ${counted(found.max_size, "row")}, as time ran out`);
    if (fresh) parts.push(`${fresh} new`);
    say([...parts, ...found.notes].join(" · "));
    at("empty").replaceChildren("Nothing that is alive has all of these keywords. ", ...suggestion(found.meant));
    at("search-fault").textContent = "";
  } catch (error) {
    if (mine !== number) return;
    if (!again) {
      show([]);
      say("");
      at("results-title").textContent = "Results";
      at("empty").textContent = "";
    }
    fault("search-fault", error);
  }
}

// A button that searches for what was meant, if a similar word is known.
function suggestion(meant) {
  if (!meant) return [];
  const take = () => {
    at("query").value = meant;
    at("query").focus();
    search();
  };
  return ["Did you mean ", element("button", { class: "plain", type: "button", onclick: take }, meant), "?"];
}

function refresh() {
  clearInterval(timer);
  if (at("live").checked) {
    timer = setInterval(() => document.hidden || following || search({ again: true }), REFRESH);
  }
}

// Saved searches

async function list() {
  try {
    const told = await ask("GET", "queries?limit=200");
    at("saved").replaceChildren(...told.queries.map(savedItem));
    at("saved-count").textContent = told.count ? String(told.count) : "";
    at("saved-empty").hidden = told.count > 0;
  } catch (error) {
    fault("save-fault", error);
  }
}

function savedItem(one) {
  const isFollowed = following?.name === one.name;
  const facts = [one.kind === "keywords" ? "" : one.kind, one.owner, one.every && `digest every ${one.every}`];
  const followButton = element(
    "button",
    { type: "button", "aria-pressed": String(isFollowed), "aria-label": `Follow ${one.name}`, onclick: () => toggle(one) },
    "Follow",
  );
  const removeButton = element(
    "button",
    { type: "button", "aria-label": `Remove ${one.name}`, onclick: () => remove(one) },
    "Remove",
  );
  return element(
    "li",
    { class: "card", "data-name": one.name },
    element("h3", {}, one.name),
    element("p", { class: "words" }, one.query),
    element("p", { class: "dim" }, facts.filter(Boolean).join(" · ")),
    element("div", { class: "row" }, followButton, removeButton),
  );
}

async function save(event) {
  event.preventDefault();
  at("save-fault").textContent = "";
  const name = at("name").value.trim();
  const body = { query: at("text").value.trim() };
  if (at("owner").value.trim()) body.owner = at("owner").value.trim();
  if (at("every").value) body.every = at("every").value;
  try {
    await ask("PUT", `queries/${encodeURIComponent(name)}`, body);
    at("save-form").reset();
    at("saving").open = false;
    await list();
    at("saved").querySelector(`[data-name="${CSS.escape(name)}"] button`)?.focus();
    say(`saved ${name}`);
  } catch (error) {
    fault("save-fault", error);
  }
}

async function remove(one) {
  try {
    if (following?.name === one.name) stopFollowing();
    await ask("DELETE", `queries/${encodeURIComponent(one.name)}`);
    await list();
    at("saved-title").focus();
    say(`removed ${one.name}`);
  } catch (error) {
    fault("save-fault", error);
  }
}

// The search that is followed

function toggle(one) {
  const same = following?.name === one.name;
  stopFollowing();
  if (!same) start(one);
}

function start(one) {
  let ready = false;
  let alive = 0;
  number += 1;
  show([]);
  at("results-title").textContent = `Following ${one.name}`;
  at("empty").textContent = one.every ? `Results come together, every ${one.every}.` : "Results appear here as they come.";
  const count = () => say(`${counted(alive, "result")}${ready ? ", live" : ""}`);

  function take(result) {
    const items = at("results");
    const known = items.querySelector(`[data-id="${CSS.escape(result.id)}"]:not(.gone)`);
    if (result.op === "-") {
      if (known) {
        known.classList.add("gone");
        known.querySelector(".facts").append(element("span", {}, "retracted"));
        alive -= 1;
      }
      return;
    }
    if (known) return;
    const item = resultItem(result);
    item.classList.toggle("new", ready);
    items.prepend(item);
    while (items.children.length > MOST) items.lastChild.remove();
    at("empty").hidden = true;
    alive += 1;
  }

  function told(kind, data) {
    if (kind === "snapshot" || kind === "added") {
      ready = kind === "added";
      alive = 0;
      at("results").replaceChildren();
    } else if (kind === "result") take(data.result);
    else if (kind === "digest") data.digest.results.forEach(take);
    else if (kind === "ready") ready = true;
    if (kind === "failed") at("search-fault").textContent = data.error;
    else if (ready) count();
  }

  function state(now) {
    if (now === "lost") say("the connection was lost: trying again");
    else if (now === "removed") {
      say(`${one.name} is gone`);
      stopFollowing();
      list();
    } else count();
  }

  following = { name: one.name, ...follow(`queries/${encodeURIComponent(one.name)}/events?marks=true`, told, state) };
  pressed();
}

function stopFollowing() {
  if (!following) return;
  following.stop();
  following = null;
  at("results-title").textContent = "Results";
  pressed();
}

function pressed() {
  for (const item of at("saved").children) {
    item.querySelector("button").setAttribute("aria-pressed", String(item.dataset.name === following?.name));
  }
}

// The state of the server

async function health() {
  const shown = at("health");
  let [state, text] = ["bad", "no connection"];
  try {
    const answer = await fetch("healthz", { cache: "no-store" });
    [state, text] = answer.ok ? ["good", "live"] : ["wait", "starting"];
  } catch {
    // as it is said above
  }
  if (shown.textContent !== text) shown.textContent = text;
  shown.dataset.state = state;
}

async function begin() {
  try {
    const schema = await ask("GET", "schema");
    document.title = `${schema.name} · skws`;
    at("source").textContent = `${schema.name} · ${schema.source}`;
    at("token-form").hidden = true;
    at("layout").hidden = false;
    await list();
  } catch (error) {
    fault("search-fault", error);
  }
}

at("search-form").addEventListener("submit", (event) => {
  event.preventDefault();
  search();
});
at("live").addEventListener("change", () => {
  refresh();
  if (at("live").checked && !following) search({ again: asked === at("query").value.trim() });
});
at("limit").addEventListener("change", () => asked && search());
at("save-this").addEventListener("click", () => {
  at("saving").open = true;
  at("text").value = at("query").value;
  if (!at("name").value) at("name").value = at("query").value.slice(0, 200).replaceAll("/", " ");
  at("name").focus();
});
at("save-form").addEventListener("submit", save);
at("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  remember(at("token").value.trim());
  at("token").value = "";
  begin();
});
completing(at("query"));
completing(at("text"));
setInterval(health, 5000);
health();
begin();
