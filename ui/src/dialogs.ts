// Actions in dialogs: the page of an action is fetched, and its marked part is shown over the page that one is on. What
// cannot be fetched is opened as the page that it is.
import { fetchPage, parsePage } from "./pages";

let shown: HTMLDialogElement | null = null;

function make(): HTMLDialogElement {
  const dialog = document.createElement("dialog");
  dialog.className = "act-dialog";
  dialog.addEventListener("close", () => {
    dialog.remove();
    shown = null;
  });
  dialog.addEventListener("click", (event) => {
    const target = event.target as HTMLElement;
    if (target === dialog || !target.closest("[data-close]")) return;
    event.preventDefault();
    dialog.close();
  });
  dialog.addEventListener("submit", (event) => void send(event as SubmitEvent));
  document.body.append(dialog);
  return dialog;
}

function show(text: string): boolean {
  const made = parsePage(text);
  const part = made.querySelector("[data-act]");
  if (!part) return false;
  shown ??= make();
  const title = document.createElement("h2");
  title.id = "act-title";
  title.textContent = made.querySelector("h1")?.textContent ?? "";
  const close = document.createElement("button");
  close.type = "button";
  close.dataset.close = "";
  close.className = "act-close";
  close.setAttribute("aria-label", "Close");
  close.textContent = "×";
  const head = document.createElement("div");
  head.className = "act-head";
  head.append(title, close);
  shown.setAttribute("aria-labelledby", title.id);
  shown.replaceChildren(head, ...Array.from(part.childNodes, (node) => document.importNode(node, true)));
  if (!shown.open) shown.showModal();
  const first = shown.querySelector<HTMLElement>("#title-plan, [role=alert]");
  const field = shown.querySelector<HTMLElement>("input:not([type=hidden]), form button, a");
  if (first) first.tabIndex = -1;
  (first ?? field ?? close).focus();
  return true;
}

async function open(address: string): Promise<void> {
  try {
    const answer = await fetchPage(address);
    if (show(await answer.text())) return;
  } catch {
    // as a page then
  }
  window.location.assign(address);
}

async function send(event: SubmitEvent): Promise<void> {
  const form = event.target as HTMLFormElement;
  const fields = new URLSearchParams();
  new FormData(form, event.submitter).forEach((value, key) => fields.append(key, String(value)));
  event.preventDefault();
  const buttons = Array.from(form.querySelectorAll<HTMLButtonElement>("button"));
  buttons.forEach((one) => (one.disabled = true));
  form.setAttribute("aria-busy", "true");
  const address = form.getAttribute("action") ?? "";
  try {
    const answer = form.method === "post" ? await fetchPage(address, fields) : await fetchPage(`${address}?${fields}`);
    if (answer.redirected) window.location.assign(answer.url);
    else if (!show(await answer.text())) throw new Error("no part to show");
  } catch {
    buttons.forEach((one) => (one.disabled = false));
    form.removeAttribute("aria-busy");
    tell(form, "The server did not answer. You can send it again: nothing is done twice.");
  }
}

function tell(form: HTMLFormElement, text: string): void {
  form.querySelector(".act-fault")?.remove();
  const note = document.createElement("p");
  note.className = "note note-bad act-fault";
  note.setAttribute("role", "alert");
  note.textContent = text;
  form.prepend(note);
}

export function openDialogs(): void {
  document.addEventListener("click", (event) => {
    const link = (event.target as HTMLElement).closest<HTMLAnchorElement>("a[data-dialog]");
    if (!link || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    void open(link.href);
  });
  // The address is what was done; asked for again, the page does not tell of it again.
  const here = new URL(window.location.href);
  if (here.searchParams.has("told")) {
    here.searchParams.delete("told");
    here.searchParams.delete("of");
    window.history.replaceState(null, "", here);
  }
}
