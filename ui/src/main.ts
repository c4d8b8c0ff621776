// What the pages do beyond the HTML that the server made.
export {};
