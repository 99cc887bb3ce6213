// Completion of a text field while typing: the combobox with a list box of the ARIA practices. The focus stays
// in the field; arrow keys select a completion, Enter takes it, Escape closes the list, all other keys type.

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
  let selected = -1;
  let timer = 0;
  let latest = 0; // number of the latest request; answers to earlier ones are dropped

  function close() {
    clearTimeout(timer);
    latest += 1;
    selected = -1;
    list.hidden = true;
    list.replaceChildren();
    field.setAttribute("aria-expanded", "false");
    field.removeAttribute("aria-activedescendant");
  }

  function select(index) {
    selected = index;
    [...list.children].forEach((option, each) => option.setAttribute("aria-selected", String(each === index)));
    if (index < 0) field.removeAttribute("aria-activedescendant");
    else {
      field.setAttribute("aria-activedescendant", list.children[index].id);
      list.children[index].scrollIntoView({ block: "nearest" });
    }
  }

  function take(option) {
    const rest = field.value.slice(field.selectionStart).replace(/^[^\s"():*?~<>=!+-]+/, ""); // without the rest of the word at the cursor
    field.value = option.dataset.query + rest;
    field.setSelectionRange(option.dataset.query.length, option.dataset.query.length);
    close();
    field.focus();
  }

  async function show() {
    const request = ++latest;
    const text = field.value.slice(0, field.selectionStart);
    let completions = [];
    try {
      if (text.trim()) ({ completions } = await ask("POST", "complete", { query: text }));
    } catch {
      // without completions, as if there were none
    }
    if (request !== latest) return;
    if (!completions.length || document.activeElement !== field) return close();
    list.replaceChildren(
      ...completions.map((completion, index) =>
        element(
          "li",
          { id: `${list.id}-${index}`, role: "option", "aria-selected": "false", "data-query": completion.query },
          element("span", {}, completion.text),
          element("span", { class: "dim" }, completion.count ? completion.count.toLocaleString("en") : ""),
        ),
      ),
    );
    select(-1);
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
    else if (event.key === "ArrowDown") select((selected + 1) % count);
    else if (event.key === "ArrowUp" && count) select((selected < 1 ? count : selected) - 1);
    else if (event.key === "Enter" && selected >= 0) take(list.children[selected]);
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
