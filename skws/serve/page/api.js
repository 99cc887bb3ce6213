// The OpenAPI description of this server as a page.

import { ask } from "./streams.js";
import { element } from "./tree.js";

const place = document.getElementById("requests");

function resolved(schema, parts) {
  const name = schema?.$ref?.split("/").pop();
  return name ? parts[name] : schema;
}

function fields(schema, parts) {
  const rows = Object.entries(resolved(schema, parts)?.properties ?? {}).map(([field, one]) =>
    element(
      "tr",
      {},
      element("td", {}, element("code", {}, field)),
      element("td", {}, one.type ?? (one.anyOf ?? []).map((each) => each.type ?? "").join(" or ")),
      element("td", {}, described(one)),
    ),
  );
  return rows.length ? element("table", {}, element("tbody", {}, ...rows)) : "";
}

// The description of a field, its limits and its default.
function described(one) {
  const limits = (one.anyOf ?? [one]).flatMap((each) => [
    each.minimum === undefined ? "" : `at least ${each.minimum}`,
    each.exclusiveMinimum === undefined ? "" : `more than ${each.exclusiveMinimum}`,
    each.maximum === undefined ? "" : `at most ${each.maximum}`,
    each.maxLength === undefined ? "" : `at most ${each.maxLength} characters`,
  ]);
  const facts = limits.filter(Boolean);
  if (one.default !== undefined && one.default !== null && one.default !== "") facts.push(`default ${JSON.stringify(one.default)}`);
  return [one.description ?? "", facts.length ? `(${facts.join(", ")})` : ""].filter(Boolean).join(" ");
}

function example(title, body) {
  if (body === undefined) return "";
  return element("div", {}, element("h3", {}, title), element("pre", {}, element("code", {}, JSON.stringify(body, null, 1))));
}

function request(method, path, one, parts) {
  const section = element("section", { class: "card" });
  section.append(element("h2", {}, element("code", {}, `${method.toUpperCase()} ${path}`)), element("p", {}, one.summary ?? ""));
  const parameters = (one.parameters ?? []).map((each) => `${each.name} (${each.in})`).join(", ");
  if (parameters) section.append(element("p", { class: "dim" }, parameters));
  const body = one.requestBody?.content?.["application/json"];
  section.append(fields(body?.schema, parts), example("Example", resolved(body?.schema, parts)?.example));
  const answer = one.responses?.["200"]?.content?.["application/json"];
  section.append(example("Answer", answer?.example));
  return section;
}

try {
  const description = await ask("GET", "openapi.json");
  const sections = Object.entries(description.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, one]) => request(method, path, one, description.components?.schemas ?? {})),
  );
  place.className = "results";
  place.replaceChildren(...sections);
} catch (error) {
  place.replaceChildren(element("p", { class: "fault", role: "alert" }, `${error.message} (enter the token on the search page)`));
}
