// The page: searches, saved searches, and the one that is followed.

import { completing } from "./complete.js";
import { RefusedError, ask, follow, remember } from "./streams.js";
import { counted, element, resultItem } from "./tree.js";

const at = (id) => document.getElementById(id);
const REFRESH = 2000; // milliseconds between searches that are kept up to date
const MOST = 500; // results of a followed search on the page

let following = null; // {name, stop}
let timer = 0;
let shownQuery = ""; // the query whose results are shown
let latest = 0; // number of the latest search; answers to earlier ones are dropped

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
  health();
}

// Results

function show(items, { keep = false } = {}) {
  const list = at("results");
  const itemsById = new Map([...list.children].map((item) => [item.dataset.id, item]));
  const listItems = items.map((result) => {
    const item = itemsById.get(result.id) ?? resultItem(result);
    item.classList.toggle("new", keep && !itemsById.has(result.id));
    return item;
  });
  list.replaceChildren(...listItems);
  at("empty").hidden = listItems.length > 0;
  at("start").hidden = true;
  return listItems.filter((item) => item.classList.contains("new")).length;
}

async function search({ again = false, fromAddress = false } = {}) {
  const query = at("query").value.trim();
  if (!query) return;
  const request = ++latest;
  if (!again) {
    stopFollowing();
    at("search-fault").textContent = "";
    say("searching…");
    if (!fromAddress) keepInAddress({ q: query, limit: at("limit").value });
  }
  try {
    const answer = await ask("POST", "search", { query, limit: Number(at("limit").value), marks: true, explain_score: true });
    if (request !== latest || following) return;
    const newCount = show(answer.results, { keep: again && query === shownQuery });
    shownQuery = query;
    at("results-title").textContent = `Results for ${query}`;
    // A full page may end the search before larger results, which are not counted.
    const sized = answer.complete && answer.found >= Number(at("limit").value) ? ` of up to ${counted(answer.max_size, "row")}` : "";
    const parts = [counted(answer.found, "result") + sized];
    if (answer.found > answer.results.length) parts.push(`the best ${answer.results.length} are shown`);
    if (!again) parts.push(`${Math.max(1, Math.round(answer.seconds * 1000))} ms`);
    if (!answer.complete) parts.push(`only those of up to ${counted(answer.max_size, "row")}, as time ran out`);
    if (newCount) parts.push(`${newCount} new`);
    const notes = answer.notes.filter((note) => !answer.instead || !note.endsWith(`: ${answer.instead}`)); // the button says so
    say([parts.join(" · "), ...notes].join("\n"));
    at("empty").replaceChildren(...(answer.meant || answer.instead ? suggestion(answer.meant || answer.instead) : ["No joined rows have all of these keywords. Try fewer of them, or the beginning of a word: berl*."]));
    at("search-fault").textContent = "";
  } catch (error) {
    if (request !== latest) return;
    if (!again) {
      show([]);
      say("");
      at("results-title").textContent = "Results";
      at("empty").textContent = "";
    }
    fault("search-fault", error);
  }
}

// A button that searches for a suggested query.
function suggestion(query) {
  const take = () => {
    at("query").value = query;
    at("query").focus();
    search();
  };
  return ["Search for ", element("button", { class: "plain", type: "button", onclick: take }, query), " instead."];
}

// The address contains the search, so that users can reload it, go back to it and send it.

function keepInAddress(parameters) {
  const address = new URL(location.href);
  address.search = new URLSearchParams(parameters).toString();
  if (address.href !== location.href) history.pushState(null, "", address);
}

async function showAddress({ back = false } = {}) {
  const parameters = new URLSearchParams(location.search);
  const [query, name, limit] = [parameters.get("q") ?? "", parameters.get("follow"), parameters.get("limit")];
  if ([...at("limit").options].some((one) => one.value === limit)) at("limit").value = limit;
  if (name !== null) {
    const request = ++latest;
    try {
      const one = await ask("GET", `queries/${encodeURIComponent(name)}`);
      if (request === latest) start(one, { fromAddress: true }); // else the address has changed since
    } catch (error) {
      if (request === latest) fault("search-fault", error);
    }
    return;
  }
  stopFollowing();
  if (back || query) at("query").value = query; // text that was typed while the page loaded stays
  if (query) await search({ fromAddress: true });
  else if (back || latest === 0) await welcome();
}

// Two words to try: preferably long ones, and not two with the same beginning, such as society and societies.
function samples(words) {
  const candidates = [...words.filter((word) => word.length >= 5), ...words];
  return candidates.filter((word, index) => candidates.findIndex((other) => other.slice(0, 5) === word.slice(0, 5)) === index).slice(0, 2);
}

// An empty page shows the searched attributes, and words that occur.
async function welcome() {
  const request = ++latest;
  shownQuery = "";
  show([]);
  say("");
  at("results-title").textContent = "Results";
  at("empty").textContent = "Type keywords: each result is a tree of joined rows that together contain all of them.";
  const words = (await Promise.all(["a", "c", "m", "s"].map((text) => ask("POST", "complete", { query: text, limit: 20 }).catch(() => null))))
    .flatMap((answer) => samples((answer?.completions ?? []).filter((one) => one.count).map((one) => one.text)));
  if (request !== latest) return; // another search has begun
  const take = (word) => () => {
    at("query").value = word;
    search();
  };
  at("samples").replaceChildren(
    ...(words.length ? ["Words that occur: "] : ["No word occurs yet."]),
    ...words.flatMap((word) => [element("button", { class: "plain", type: "button", onclick: take(word) }, word), " "]),
  );
  at("relations").textContent = relationsText;
  at("start").hidden = false;
}

let relationsText = "";

function describe(schema) {
  const searched = schema.relations.filter((one) => one.search.length);
  const names = searched.map((one) => `${one.name} (${one.search.join(", ")})`);
  relationsText = `${counted(schema.relations.length, "relation")}, ${counted(schema.joins.length, "join")}. Searched: ${names.join(", ")}.`;
}

// The host and name of a database, or the end of a path.
function shortened(source) {
  const address = /^[a-z]+:\/\/(?:[^@/]*@)?([^/?:]*)[^/?]*(\/[^?]*)?/.exec(source);
  if (address) return `${address[1]}${address[2] ?? ""}`;
  return source.split("/").slice(-2).join("/");
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
    const answer = await ask("GET", "queries?limit=200");
    at("saved").replaceChildren(...answer.queries.map(savedItem));
    const listed = answer.queries.length < answer.count ? `, the first ${answer.queries.length} of which are listed` : "";
    at("saved-count").textContent = answer.count ? `${answer.count.toLocaleString("en")}${listed}` : "";
    at("saved-empty").hidden = answer.count > 0;
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
    isFollowed ? "Stop" : "Follow",
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

function offerUndo(one) {
  const undo = async () => {
    at("undo").hidden = true;
    try {
      await ask("PUT", `queries/${encodeURIComponent(one.name)}`, one.request);
      await list();
      say(`${one.name} is saved again`);
    } catch (error) {
      fault("save-fault", error);
    }
  };
  at("undo").replaceChildren(`Removed ${one.name}. `, element("button", { class: "plain", type: "button", onclick: undo }, "Undo"));
  at("undo").hidden = false;
}

async function remove(one) {
  const final = "kind" in one.request; // of another package, which no request can save
  if (final && !confirm(`Remove ${one.name} for everyone? It cannot be saved again here.`)) return;
  try {
    if (following?.name === one.name) {
      stopFollowing();
      keepInAddress({});
    }
    await ask("DELETE", `queries/${encodeURIComponent(one.name)}`);
    await list();
    at("saved-title").focus();
    if (final) say(`removed ${one.name}`);
    else offerUndo(one);
  } catch (error) {
    fault("save-fault", error);
  }
}

// The search that is followed

function toggle(one) {
  const same = following?.name === one.name;
  if (!same) return start(one);
  stopFollowing();
  keepInAddress({}); // a reloaded page would follow the search again
  at("results-title").textContent = `Results of ${one.name} so far`;
  say(`${one.name} is no longer followed`);
}

// The latest time in the stream.
async function eventTime() {
  const metrics = await ask("GET", "metrics");
  return Number(/^skws_event_time_seconds\{.*\} (\S+)$/m.exec(metrics)?.[1]);
}

function start(one, { fromAddress = false } = {}) {
  let ready = false;
  let dropped = false; // live results that are no longer on the page
  stopFollowing();
  latest += 1;
  at("query").value = shownQuery = "";
  at("live").checked = false;
  refresh();
  if (!fromAddress) keepInAddress({ follow: one.name });
  show([]);
  at("results-title").textContent = `Following ${one.name}`;
  at("empty").textContent = one.every ? `Results arrive together, every ${one.every}.` : "Results appear here as they arrive.";

  function count() {
    const live = at("results").querySelectorAll(".result:not(.gone)").length;
    say([counted(live, "result"), dropped && "older ones are left out", ready && "live"].filter(Boolean).join(", "));
  }

  function end(item, why) {
    item.classList.add("gone");
    item.querySelector(".facts").append(element("span", {}, why));
  }

  // No event says that the end of a result has passed.
  async function expire() {
    if (document.hidden || !ready) return;
    const time = await eventTime().catch(() => NaN); // the stream reports a lost connection
    if (Number.isNaN(time) || following?.expiring !== expiring) return;
    const ended = [...at("results").querySelectorAll("[data-end]:not(.gone)")].filter((item) => Number(item.dataset.end) <= time);
    for (const item of ended) end(item, "ended");
    if (ended.length) count();
  }

  function take(result) {
    const items = at("results");
    const earlier = items.querySelector(`[data-id="${CSS.escape(result.id)}"]`);
    const live = earlier && !earlier.classList.contains("gone");
    if (result.op === "-") {
      if (live) end(earlier, "retracted");
      return;
    }
    const item = resultItem(result);
    if (earlier && result.op === "~") return earlier.replaceWith(item); // in the same place, and not marked as new
    if (live) return;
    item.classList.toggle("new", ready && result.op === "+");
    items.prepend(item);
    while (items.children.length > MOST) {
      dropped ||= !items.lastChild.classList.contains("gone");
      items.lastChild.remove();
    }
    at("empty").hidden = true;
  }

  function onEvent(kind, data) {
    if (kind === "snapshot" || kind === "added") {
      ready = kind === "added";
      dropped = false;
      at("results").replaceChildren();
    } else if (kind === "result") take(data.result);
    else if (kind === "digest") data.digest.results.forEach(take);
    else if (kind === "ready") ready = true;
    if (kind === "failed") at("search-fault").textContent = data.error;
    else if (ready) count();
  }

  function onState(state, error) {
    if (state === "lost") say("the connection was lost: trying again");
    else if (state === "refused") {
      stopFollowing();
      askForToken(error);
    }
    else if (state === "removed") {
      say(`${one.name} is gone`);
      stopFollowing();
      list();
    } else count();
  }

  const expiring = setInterval(expire, REFRESH);
  following = { name: one.name, expiring, ...follow(`queries/${encodeURIComponent(one.name)}/events?marks=true`, onEvent, onState) };
  pressed();
}

function stopFollowing() {
  if (!following) return;
  following.stop();
  clearInterval(following.expiring);
  following = null;
  at("results-title").textContent = "Results";
  pressed();
}

function pressed() {
  for (const item of at("saved").children) {
    const on = item.dataset.name === following?.name;
    const button = item.querySelector("button");
    button.setAttribute("aria-pressed", String(on));
    button.textContent = on ? "Stop" : "Follow";
  }
}

// The state of the server

async function health() {
  const label = at("health");
  let [state, text] = ["bad", "no connection"];
  try {
    const answer = await fetch("healthz", { cache: "no-store" });
    [state, text] = answer.ok ? ["good", "live"] : ["wait", "starting"];
    if (answer.ok && !at("token-form").hidden) [state, text] = ["wait", "waiting for the token"];
  } catch {
    // the text above says so
  }
  if (label.textContent !== text) label.textContent = text;
  label.dataset.state = state;
}

async function begin() {
  try {
    const schema = await ask("GET", "schema");
    document.title = `${schema.name} · skws`;
    const source = shortened(schema.source);
    at("source").textContent = source.split("/").pop() === schema.name ? source : `${schema.name} · ${source}`;
    at("source").title = schema.source;
    at("token-form").hidden = true;
    at("layout").hidden = false;
    health();
    describe(schema);
    await Promise.all([list(), showAddress()]);
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
  if (at("live").checked && !following) search({ again: shownQuery === at("query").value.trim() });
});
at("limit").addEventListener("change", () => shownQuery && search());
at("save-this").addEventListener("click", () => {
  at("saving").open = true;
  at("text").value = at("query").value;
  if (!at("name").value) at("name").value = at("query").value.slice(0, 200).replaceAll("/", " ");
  at("name").focus();
  at("name").select();
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
addEventListener("popstate", () => showAddress({ back: true }));
setInterval(health, 5000);
health();
begin();
