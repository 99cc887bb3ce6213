// Requests to this server, and its event streams. Streams are read with fetch: EventSource sends no token.

const KEY = "skws token";

export class RefusedError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function remember(token) {
  sessionStorage.setItem(KEY, token);
}

function headers(others = {}) {
  const token = sessionStorage.getItem(KEY);
  return token ? { ...others, authorization: `Bearer ${token}` } : others;
}

export async function ask(method, path, body) {
  const options = { method, headers: headers(body ? { "content-type": "application/json" } : {}), cache: "no-store" };
  if (body) options.body = JSON.stringify(body);
  const answer = await fetch(path, options);
  if (answer.status === 204) return null;
  if (!answer.ok) throw await refusal(answer);
  return answer.headers.get("content-type").startsWith("application/json") ? answer.json() : answer.text();
}

async function refusal(answer) {
  const body = await answer.json().catch(() => ({}));
  return new RefusedError(answer.status, body.error ?? `status ${answer.status}`);
}

// Calls onEvent(kind, data) with each event, and onState(state, error) when the connection changes, until stop() is
// called, the search is removed or a token is needed. Resumes by itself.
export function follow(path, onEvent, onState) {
  const stopping = new AbortController();
  let last = null;
  let pause = 500;

  async function read() {
    const resumption = last === null ? {} : { "last-event-id": last };
    const answer = await fetch(path, { headers: headers(resumption), signal: stopping.signal, cache: "no-store" });
    if (!answer.ok) throw await refusal(answer);
    onState("open");
    pause = 500;
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return true;
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) if (!take(part)) return false;
    }
  }

  function take(part) {
    let kind = "message";
    let data = "";
    for (const line of part.split("\n")) {
      if (line.startsWith("event: ")) kind = line.slice(7);
      else if (line.startsWith("id: ")) last = line.slice(4);
      else if (line.startsWith("data: ")) data += line.slice(6);
    }
    if (data) onEvent(kind, JSON.parse(data));
    return kind !== "removed";
  }

  async function run() {
    while (!stopping.signal.aborted) {
      try {
        if (!(await read())) return onState("removed");
      } catch (error) {
        if (stopping.signal.aborted) return;
        if (error instanceof RefusedError && error.status === 401) return onState("refused", error);
        if (error instanceof RefusedError && error.status === 404) return onState("removed");
      }
      onState("lost");
      await new Promise((done) => setTimeout(done, pause));
      pause = Math.min(2 * pause, 10_000);
    }
  }

  run();
  return { stop: () => stopping.abort() };
}
