import load from "./wasm/haltwise.js";

/** Loads the module. Await it first. */
export default async function init(module = new URL("./wasm/haltwise_bg.wasm", import.meta.url)) {
  await load({ module_or_path: module });
}

export * from "./core.js";
