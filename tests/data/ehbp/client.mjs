// Send one request with the client of the package `ehbp`: as python-client, but the body is one piece.
import { createInterface } from "node:readline";
import { Identity, Transport, createTransport } from "ehbp";

const say = (event) => process.stdout.write(`${JSON.stringify(event)}\n`);
// It warns of statuses there.
console.warn = () => {};

async function main(order) {
  const { url, key, method, path, pieces, headers } = order;
  const transport = key
    ? new Transport(await Identity.fromPublicKeyHex(key), new URL(url).host)
    : await createTransport(url);
  const body = pieces.length ? pieces.join("") : undefined;
  const response = await transport.request(new URL(path, url), { method, body, headers });
  say({ status: response.status, headers: Object.fromEntries(response.headers) });
  const decoder = new TextDecoder();
  for await (const piece of response.body ?? []) {
    say({ piece: decoder.decode(piece, { stream: true }) });
  }
  say({ end: true });
}

createInterface({ input: process.stdin }).once("line", async (line) => {
  try {
    await main(JSON.parse(line));
  } catch (error) {
    say({ error: error.constructor.name, message: error.message });
  }
});
