// The page sends options to the worker and shows the answers. It computes nothing.
const worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
const at = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

let number = 0;
let ready = false;
let hasTraces = false;
let asked = false;
let strokes = null;
let decided = [];
let playing = null;

// Within the book, the brand links back to it.
if (/\/playground\/(index\.html)?$/.test(location.pathname)) {
  const book = document.createElement("a");
  book.href = "../index.html";
  book.textContent = "Haltwise";
  document.querySelector(".brand").replaceChildren(book);
}

function say(words) {
  at("status").textContent = words;
}

function problem(words) {
  at("problem").hidden = words === null;
  at("problem").textContent = words ?? "";
}

function percent(share) {
  return `${+(100 * share).toFixed(1)}%`;
}

function method() {
  return at("wishes").elements.method.value;
}

// The wishes by option, each with the methods it goes with and whether it changes how files are
// read. The page's fields carry these facts from the list of options.
function wishes() {
  const all = { method: { value: method() } };
  for (const field of at("wishes").querySelectorAll("[data-option]")) {
    const { option, methods, reads } = field.dataset;
    field.disabled = methods !== undefined && !methods.split(" ").includes(method());
    const text = field.value.trim();
    if (field.disabled || text === "") continue;
    const value = ["number", "range"].includes(field.type) ? +text : text;
    all[option] = { value, methods: methods?.split(" "), reads: reads !== undefined };
  }
  return all;
}

// One calibration at a time: while the sliders move, only the latest options wait.
let waiting = false;
function calibrate() {
  at("alpha-value").textContent = percent(at("alpha").value);
  at("delta-value").textContent = percent(at("delta").value);
  if (!hasTraces) return;
  if (asked) {
    waiting = true;
    return;
  }
  asked = true;
  number += 1;
  at("results").setAttribute("aria-busy", "true");
  worker.postMessage({ kind: "calibrate", number, wishes: wishes() });
}

function answered() {
  asked = false;
  if (waiting) {
    waiting = false;
    calibrate();
  }
}

async function open(role, name, bytes) {
  // Results on their way are about other files: they must not cover what is said of this one.
  number += 1;
  problem(null);
  say(`Reading ${name}…`);
  worker.postMessage({ kind: "open", role, name, bytes }, [bytes]);
}

async function openFile(role, file) {
  if (file === undefined) return;
  if (role === "traces") {
    forget();
    worker.postMessage({ kind: "close", role: "test" });
    at("test").value = "";
  }
  open(role, file.name, await file.arrayBuffer());
}

function forget() {
  strokes = null;
  hasTraces = false;
  at("player").hidden = true;
  at("opened").textContent = "";
}

const heard = {
  ready() {
    ready = true;
    document.documentElement.dataset.ready = "yes";
    say("Ready: open traces, or try it on PenDigits.");
  },
  opened({ role, name, sequences, steps }) {
    const what = `${name}: ${sequences} sequences of up to ${steps} steps`;
    if (role === "test") {
      at("opened").textContent += ` Measured on ${what}.`;
    } else {
      at("opened").textContent = `Made from ${what}.`;
      hasTraces = true;
    }
    say("Read.");
    calibrate();
  },
  progress({ done, total }) {
    at("progress").hidden = false;
    at("progress").value = done / total;
  },
  results({ number: of, html, took, warnings, whole }) {
    if (of === number) {
      at("results").innerHTML = html;
      haltwiseFigures(at("results"));
      at("downloads").hidden = false;
      const seconds = took < 995 ? `${Math.max(1, Math.round(took))} ms` : `${(took / 1000).toFixed(1)} s`;
      say([`Calibrated in ${seconds}.`, ...warnings].join(" "));
      problem(null);
    }
    if (!whole) {
      // The chosen rule is ready: new options may replace the other methods.
      if (waiting) answered();
      return;
    }
    at("progress").hidden = true;
    if (of === number) {
      at("results").setAttribute("aria-busy", "false");
      document.documentElement.dataset.shown = of;
      if (strokes !== null) askStroke();
    }
    answered();
  },
  replayed({ decided: all }) {
    decided = all;
    at("player").hidden = false;
    draw();
  },
  file({ name, type, text }) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  },
  problem({ of, words }) {
    at("progress").hidden = true;
    at("results").setAttribute("aria-busy", "false");
    if (of === "calibrate") {
      at("results").textContent = "";
      at("downloads").hidden = true;
    }
    problem(words);
    say("");
    if (of === "calibrate") answered();
  },
};

worker.onmessage = ({ data }) => heard[data.kind](data);
worker.onerror = (event) => problem(event.message ?? "the worker cannot start");

// People choose or drop traces.
for (const [id, drop] of [["traces", "drop"], ["test", "drop-test"]]) {
  at(id).addEventListener("change", () => openFile(id, at(id).files[0]));
  at(drop).addEventListener("dragover", (event) => {
    event.preventDefault();
    at(drop).classList.add("over-it");
  });
  at(drop).addEventListener("dragleave", () => at(drop).classList.remove("over-it"));
  at(drop).addEventListener("drop", (event) => {
    event.preventDefault();
    at(drop).classList.remove("over-it");
    openFile(id, event.dataTransfer.files[0]);
  });
}
// A file dropped elsewhere must not replace the page.
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => event.preventDefault());

at("try").addEventListener("click", async () => {
  forget();
  say("Loading PenDigits…");
  try {
    const part = async (name) => {
      const answer = await fetch(`pendigits/${name}`);
      if (!answer.ok) throw new Error(`pendigits/${name}: ${answer.status}`);
      return answer;
    };
    const [traces, test, drawn] = await Promise.all(
      ["calibration.npz", "test.npz", "strokes.json"].map(part),
    );
    strokes = await drawn.json();
    at("which").max = strokes.length;
    open("traces", "calibration.npz", await traces.arrayBuffer());
    open("test", "test.npz", await test.arrayBuffer());
  } catch (error) {
    problem(`PenDigits cannot be loaded: ${error.message}`);
  }
});

// A name counts only when it is complete.
const written = (event) => event.target.type === "text";
at("wishes").addEventListener("input", (event) => written(event) || calibrate());
at("wishes").addEventListener("change", (event) => written(event) && calibrate());
at("wishes").addEventListener("submit", (event) => event.preventDefault());
for (const what of ["rule", "report"]) {
  at(what).addEventListener("click", () => worker.postMessage({ kind: "download", what, method: method() }));
}

// The player draws a stroke step by step.
function askStroke() {
  const which = Math.min(Math.max(1, +at("which").value || 1), strokes.length);
  worker.postMessage({ kind: "replay", sequence: which - 1 });
}

function draw() {
  const stroke = strokes[Math.min(Math.max(1, +at("which").value || 1), strokes.length) - 1];
  const steps = stroke.points.length;
  at("step").max = steps;
  const now = Math.min(+at("step").value, steps);
  at("step-value").textContent = `${now} of ${steps}`;
  const svg = at("stroke");
  svg.replaceChildren();
  const add = (name, attributes) => {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    svg.append(element);
  };
  const place = ([x, y]) => `${x},${100 - y}`;
  const line = (points, kind) => add("polyline", { points: points.map(place).join(" "), class: kind });
  line(stroke.points, "ahead");
  line(stroke.points.slice(0, now), "ink");
  const [x, y] = stroke.points[now - 1];
  add("circle", { cx: x, cy: 100 - y, r: 2.5, class: "pen" });
  const rows = decided.map(({ method: name, steps: stop, predictions }) => {
    const stopped = now >= stop;
    const row = document.createElement("tr");
    const cell = (text, kind = "td") => {
      const element = document.createElement(kind);
      element.textContent = text;
      row.append(element);
      return element;
    };
    const head = cell(name, "th");
    head.scope = "row";
    head.className = "text";
    cell(`step ${stop}`);
    cell(predictions[stop - 1]);
    cell(stopped ? "stopped" : "reads on");
    row.className = stopped ? "stopped" : "";
    return row;
  });
  at("decisions").replaceChildren(...rows);
  const says = decided[0]?.predictions;
  at("said").textContent = says === undefined ? "" :
    `At step ${now} the classifier says ${says[now - 1]}; at the end ${says[steps - 1]}. It is a ${stroke.label}.`;
}

function pause() {
  clearInterval(playing);
  playing = null;
  at("play").textContent = "Play";
}

at("play").addEventListener("click", () => {
  if (playing !== null) return pause();
  if (+at("step").value >= +at("step").max) at("step").value = 1;
  else at("step").value = +at("step").value + 1;
  at("play").textContent = "Pause";
  draw();
  playing = setInterval(() => {
    if (+at("step").value >= +at("step").max) return pause();
    at("step").value = +at("step").value + 1;
    draw();
  }, 600);
});
at("step").addEventListener("input", () => {
  pause();
  draw();
});
at("which").addEventListener("change", () => {
  pause();
  at("step").value = at("step").max;
  askStroke();
});
calibrate();
