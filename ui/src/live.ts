// What is going on: the page is asked for again, and what has changed of its marked parts takes their place. What is
// asked for later (data-part) is fetched once it is in sight, a few at a time.
import { drawCharts, dropCharts } from "./charts";
import { fetchPage, parsePage } from "./pages";

const AT_ONCE = 4;
const waiting: HTMLElement[] = [];
let underWay = 0;

class Refused extends Error {
  constructor(readonly status: number) {
    super(`${status}`);
  }
}

async function look(address: string): Promise<Document> {
  const answer = await fetchPage(address);
  if (!answer.ok) throw new Refused(answer.status);
  return parsePage(await answer.text());
}

function fill(place: HTMLElement, made: Document): void {
  dropCharts(place);
  place.replaceChildren(...Array.from(made.body.childNodes, (node) => document.importNode(node, true)));
  drawCharts(place);
}

async function load(place: HTMLElement): Promise<void> {
  const address = place.dataset.part ?? "";
  place.setAttribute("aria-busy", "true");
  try {
    const made = await look(`${address}?fragment=1`);
    if (place.isConnected) fill(place, made);
  } catch {
    const wait = place.querySelector(".wait");
    if (wait) wait.prepend("This could not be loaded. ");
  } finally {
    place.removeAttribute("aria-busy");
  }
}

function next(): void {
  while (underWay < AT_ONCE && waiting.length) {
    const place = waiting.shift() as HTMLElement;
    underWay += 1;
    void load(place).finally(() => {
      underWay -= 1;
      next();
    });
  }
}

const sight = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      sight.unobserve(entry.target);
      waiting.push(entry.target as HTMLElement);
    }
    next();
  },
  { rootMargin: "200px" },
);

const AGAIN_AFTER_MS = 120_000;
const asked = new WeakMap<HTMLElement, number>();

export function loadParts(root: ParentNode): void {
  root.querySelectorAll<HTMLElement>("[data-part]").forEach((place) => {
    const before = asked.get(place);
    if (before !== undefined && performance.now() - before < AGAIN_AFTER_MS) return;
    asked.set(place, performance.now());
    sight.observe(place);
  });
}

// Parts that were fetched stay as they are when what is around them is made anew.
function keepParts(old: Element, made: Element): void {
  made.querySelectorAll<HTMLElement>("[data-part]").forEach((place) => {
    const there = Array.from(old.querySelectorAll<HTMLElement>("[data-part]")).find((one) => one.dataset.part === place.dataset.part);
    if (there) place.replaceWith(there);
  });
}

const shown = new WeakMap<Element, string>();

function replace(place: Element, made: Element): void {
  if (place.contains(document.activeElement) || place.querySelector("details[open] *:hover")) return;
  const opened = Array.from(place.querySelectorAll("details"), (one) => one.open);
  dropCharts(place);
  keepParts(place, made);
  place.replaceWith(made);
  made.querySelectorAll("details").forEach((one, number) => {
    if (number < opened.length) one.open = opened[number];
  });
  drawCharts(made);
  loadParts(made);
}

async function refresh(after: () => void): Promise<number> {
  const made = await look(window.location.href);
  const now = new Map(Array.from(made.querySelectorAll<HTMLElement>("[data-refresh]"), (one) => [one.dataset.refresh, one]));
  document.querySelectorAll<HTMLElement>("[data-refresh]").forEach((place) => {
    const other = now.get(place.dataset.refresh);
    if (!other) return;
    const text = other.outerHTML;
    if (shown.get(place) === text) return;
    const moved = document.importNode(other, true);
    shown.set(moved, text);
    if (place.isConnected) replace(place, moved);
  });
  const missing = Array.from(now.keys()).some((key) => !document.querySelector(`[data-refresh="${CSS.escape(key ?? "")}"]`));
  after();
  if (missing && !document.querySelector("dialog[open]")) window.location.reload();
  return Number(made.body.dataset.live ?? 0);
}

// What is shown may be old: since when, and why. Without a cause the note goes.
let freshAt = new Date();
function tellAge(cause: unknown): void {
  document.getElementById("stale")?.remove();
  if (cause === undefined) return;
  const since = `${freshAt.toISOString().slice(0, 16).replace("T", " ")} UTC`;
  const isOut = cause instanceof Refused && (cause.status === 401 || cause.status === 403);
  const note = document.createElement("p");
  note.id = "stale";
  note.className = "note note-bad";
  note.setAttribute("role", "alert");
  note.textContent = `Not updated since ${since}: ${isOut ? "you are no longer logged in. Load Airflow's page again to log in." : "the server does not answer. It will be asked again."}`;
  document.querySelector("main")?.prepend(note);
}

// Asks again every few seconds while the page is seen, as often as the page itself says.
export function keepFresh(after: () => void): void {
  let every = Number(document.body.dataset.live ?? 0);
  let failures = 0;
  document.querySelectorAll<HTMLElement>("[data-refresh]").forEach((place) => shown.set(place, place.outerHTML));
  const turn = async (): Promise<void> => {
    if (!document.hidden && !document.querySelector("dialog[open]")) {
      try {
        every = await refresh(after);
        freshAt = new Date();
        failures = 0;
        tellAge(undefined);
      } catch (cause) {
        every = Math.min(every * 2, 60); // the server is away: less often
        failures += 1;
        if (failures > 1) tellAge(cause);
      }
    }
    if (every) window.setTimeout(() => void turn(), every * 1000);
  };
  if (every) window.setTimeout(() => void turn(), every * 1000);
}
