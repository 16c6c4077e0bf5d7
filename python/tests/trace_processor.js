// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Perfetto's trace_processor, which is made for a browser's worker, in node: trace_processor.js
// FOLDER. Requests come on the standard input, each a length (4 bytes, little-endian) and a message
// of Perfetto's RPC; answers go the same way.
"use strict";
const fs = require("fs");
const path = require("path");

const folder = process.argv[2];
const here = (url) => path.join(folder, path.basename(String(url)));

// What the bundle expects of a worker.
Object.defineProperty(process, "type", { value: "renderer" });
globalThis.self = globalThis;
globalThis.WorkerGlobalScope = function () {};
globalThis.importScripts = () => {};
globalThis.location = { href: "http://localhost/engine_bundle.js" };
globalThis.fetch = async (url) =>
  new Response(fs.readFileSync(here(url)), { headers: { "Content-Type": "application/wasm" } });
globalThis.XMLHttpRequest = class {
  open(_method, url) {
    this.url = url;
  }
  send() {
    this.response = new Uint8Array(fs.readFileSync(here(this.url))).buffer;
  }
};
console.log = console.error;

(0, eval)(fs.readFileSync(here("engine_bundle.js"), "utf8"));

const write = (bytes) => {
  for (let at = 0; at < bytes.length; ) {
    try {
      at += fs.writeSync(1, bytes, at);
    } catch (error) {
      if (error.code !== "EAGAIN") throw error;
    }
  }
};

const port = { onmessage: null, postMessage: () => {} };
self.onmessage({ data: port });

// What is posted before the program is there waits in the bundle; its answers come later. So
// answers are sent as they come, and the reader counts messages.
port.postMessage = (bytes) => {
  const head = Buffer.alloc(4);
  head.writeUInt32LE(bytes.length);
  write(Buffer.concat([head, Buffer.from(bytes)]));
};

let waiting = Buffer.alloc(0);
process.stdin.on("data", (chunk) => {
  waiting = Buffer.concat([waiting, chunk]);
  while (waiting.length >= 4 && waiting.length >= 4 + waiting.readUInt32LE(0)) {
    const length = waiting.readUInt32LE(0);
    port.onmessage({ data: new Uint8Array(waiting.subarray(4, 4 + length)) });
    waiting = waiting.subarray(4 + length);
  }
});
process.stdin.on("end", () => process.exit(0));
