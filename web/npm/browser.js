import load from "./wasm/haltwise.js";

/** Loads the module; wait for it before anything else. */
export default async function init(module) {
  await load(module === undefined ? undefined : { module_or_path: module });
}

export * from "./core.js";
