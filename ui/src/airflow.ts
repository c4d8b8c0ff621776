// Moving about: these pages are in a frame of Airflow's, which may not lead the window around it elsewhere. The window is
// of the same origin, so its address can be set, and its router told: the same as a link of Airflow's own.

export function outerWindow(): Window | null {
  try {
    return window.parent !== window && window.parent.document ? window.parent : null;
  } catch {
    return null; // of another origin
  }
}

export function isFramed(): boolean {
  return outerWindow() !== null;
}

// To `airflow` in the window around this frame; without one to `here`.
export function go(here: string, airflow: string): void {
  const outer = outerWindow();
  if (outer === null) {
    window.location.assign(here);
    return;
  }
  outer.history.pushState({}, "", airflow);
  outer.dispatchEvent(new PopStateEvent("popstate", { state: {} }));
}

// Another site in a tab of its own. The frame may open none, so a link in the window around it is followed.
function leave(outer: Window, address: string): void {
  const link = outer.document.createElement("a");
  link.href = address;
  link.target = "_blank";
  link.rel = "noopener noreferrer";
  outer.document.body.append(link);
  link.click();
  link.remove();
}

export function followLinks(): void {
  document.addEventListener("click", (event) => {
    const link = (event.target as Element | null)?.closest?.("a[data-goto], a[data-outside]");
    if (!(link instanceof HTMLAnchorElement) || event.defaultPrevented || event.button !== 0) return;
    const outer = outerWindow();
    if (outer === null) return;
    if (link.dataset.outside !== undefined) {
      event.preventDefault();
      leave(outer, link.href);
    } else if (!event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey) {
      event.preventDefault();
      go(link.href, link.dataset.goto ?? link.href);
    }
  });
}
