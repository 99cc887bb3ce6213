// Completion of a text field while typing: the combobox with a list box of the ARIA practices. The focus stays
// in the field; arrow keys choose, Enter takes what is chosen, Escape closes, everything else goes on typing.

import { ask } from "./streams.js";
import { element } from "./tree.js";

const PAUSE = 120; // milliseconds without a key before the server is asked

export function completing(field) {
  const list = element("ul", { id: `${field.id}-options`, role: "listbox", class: "options-list", "aria-label": "Completions" });
  list.hidden = true;
  field.after(list);
  for (const [name, value] of Object.entries({
    role: "combobox",
    "aria-autocomplete": "list",
    "aria-haspopup": "listbox",
    "aria-expanded": "false",
    "aria-controls": list.id,
  })) {
    field.setAttribute(name, value);
  }
  let chosen = -1;
  let timer = 0;
  let number = 0; // of the latest request: answers to earlier ones are dropped

  function close() {
    clearTimeout(timer);
    number += 1;
    chosen = -1;
    list.hidden = true;
    list.replaceChildren();
    field.setAttribute("aria-expanded", "false");
    field.removeAttribute("aria-activedescendant");
  }

  function choose(at) {
    chosen = at;
    [...list.children].forEach((option, each) => option.setAttribute("aria-selected", String(each === at)));
    if (at < 0) field.removeAttribute("aria-activedescendant");
    else {
      field.setAttribute("aria-activedescendant", list.children[at].id);
      list.children[at].scrollIntoView({ block: "nearest" });
    }
  }

  function take(option) {
    const rest = field.value.slice(field.selectionStart).replace(/^[^\s"():*?~<>=!+-]+/, ""); // of the word in which the cursor is
    field.value = option.dataset.query + rest;
    field.setSelectionRange(option.dataset.query.length, option.dataset.query.length);
    close();
    field.focus();
  }

  async function show() {
    const mine = ++number;
    const text = field.value.slice(0, field.selectionStart);
    let found = [];
    try {
      if (text.trim()) found = (await ask("POST", "complete", { query: text })).completions;
    } catch {
      // typing goes on without help
    }
    if (mine !== number) return;
    if (!found.length || document.activeElement !== field) return close();
    list.replaceChildren(
      ...found.map((one, at) =>
        element(
          "li",
          { id: `${list.id}-${at}`, role: "option", "aria-selected": "false", "data-query": one.query },
          element("span", {}, one.text),
          element("span", { class: "dim" }, one.count ? one.count.toLocaleString("en") : ""),
        ),
      ),
    );
    choose(-1);
    list.hidden = false;
    field.setAttribute("aria-expanded", "true");
  }

  field.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(show, PAUSE);
  });
  field.addEventListener("keydown", (event) => {
    const count = list.children.length;
    if (event.isComposing) return;
    if (event.key === "ArrowDown" && list.hidden) show();
    else if (event.key === "ArrowDown") choose((chosen + 1) % count);
    else if (event.key === "ArrowUp" && count) choose((chosen < 1 ? count : chosen) - 1);
    else if (event.key === "Enter" && chosen >= 0) take(list.children[chosen]);
    else if (event.key === "Escape" && !list.hidden) close();
    else {
      if (event.key === "Enter") close();
      return;
    }
    event.preventDefault();
  });
  field.addEventListener("blur", close);
  list.addEventListener("pointerdown", (event) => {
    event.preventDefault(); // the focus stays in the field
    const option = event.target.closest("[role=option]");
    if (option) take(option);
  });
}
