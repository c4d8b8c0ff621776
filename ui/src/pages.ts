// Pages of this server, asked for in the name of whoever looks at them.

export async function fetchPage(address: string, body?: URLSearchParams): Promise<Response> {
  return fetch(address, {
    method: body ? "POST" : "GET",
    body,
    headers: { Accept: "text/html" },
    credentials: "same-origin",
  });
}

export function parsePage(text: string): Document {
  return new DOMParser().parseFromString(text, "text/html");
}
