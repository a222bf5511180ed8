import { readFileSync } from "node:fs";

import { initSync } from "./wasm/haltwise.js";

initSync({ module: readFileSync(new URL("./wasm/haltwise_bg.wasm", import.meta.url)) });

/** Node needs no loading. */
export default async function init() {}

export * from "./core.js";
