// The OpenAPI description of this server as a page.

import { ask } from "./streams.js";
import { element } from "./tree.js";

const place = document.getElementById("requests");

function fields(schema, parts) {
  const name = schema?.$ref?.split("/").pop();
  const known = name ? parts[name] : schema;
  const rows = Object.entries(known?.properties ?? {}).map(([field, one]) =>
    element(
      "tr",
      {},
      element("td", {}, element("code", {}, field)),
      element("td", {}, one.type ?? (one.anyOf ?? []).map((each) => each.type ?? "").join(" or ")),
      element("td", {}, one.description ?? ""),
    ),
  );
  return rows.length ? element("table", {}, element("tbody", {}, ...rows)) : "";
}

function request(method, path, one, parts) {
  const section = element("section", { class: "card" });
  section.append(element("h2", {}, element("code", {}, `${method.toUpperCase()} ${path}`)), element("p", {}, one.summary ?? ""));
  const given = (one.parameters ?? []).map((each) => `${each.name} (${each.in})`).join(", ");
  if (given) section.append(element("p", { class: "dim" }, given));
  section.append(fields(one.requestBody?.content?.["application/json"]?.schema, parts));
  return section;
}

try {
  const told = await ask("GET", "openapi.json");
  const made = Object.entries(told.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, one]) => request(method, path, one, told.components?.schemas ?? {})),
  );
  place.className = "results";
  place.replaceChildren(...made);
} catch (error) {
  place.replaceChildren(element("p", { class: "fault", role: "alert" }, `${error.message} (the page for people asks for the token)`));
}
