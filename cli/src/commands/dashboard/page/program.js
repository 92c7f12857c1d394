// Shows the states that the server sends, and explains VMs.

import { attribute, byId, children, clock, make, query, set, shownName } from "./text.js";
import { showNodes } from "./nodes.js";
import { begin, showTimelines } from "./timelines.js";

let state = null;
let explained = null;

// Migrations.

function createMove() {
  const item = make("li");
  item.append(make("span"), make("span"), document.createElement("progress"), make("span"), make("span"));
  return item;
}

function updateMove(item, move) {
  const [name, way, bar, time, text] = item.children;
  item.className = move.failed ? "failed" : "";
  set(name, state.namespace === null ? move.namespace + "/" + move.vm : move.vm);
  set(way, `${move.source || "?"} → ${move.target || "?"}`);
  bar.max = 100;
  if (move.failed) bar.value = 0;
  else if (move.percent !== null) bar.value = move.percent;
  else bar.removeAttribute("value");
  attribute(bar, "aria-label", `${move.vm}: ${move.phase}`);
  set(time, move.seconds + "s");
  set(text, `${move.text} (by ${move.by})`);
}

// The rest.

function createEntry(entry) {
  const item = make("li", entry.kind);
  item.append(make("time"), make("span"), make("span"), make("span", "text"));
  return item;
}

function updateEntry(item, entry) {
  const [time, kind, vm, text] = item.children;
  set(time, clock(entry.at));
  set(kind, entry.kind);
  set(vm, state.namespace === null ? entry.namespace + "/" + entry.vm : entry.vm);
  set(text, entry.text);
}

function showProblems() {
  const section = byId("problems");
  section.hidden = state.problems.length === 0;
  children(section.lastElementChild, state.problems, (problem) => problem.what, () => make("li", "warning"),
    (item, problem) => set(item, `${problem.what}: ${problem.text}`));
}

function show() {
  const count = (number, one) => `${number} ${one}${number === 1 ? "" : "s"}`;
  const place = state.namespace === null ? "all namespaces" : "namespace " + state.namespace;
  const active = state.moves.filter((move) => !move.ended).length;
  set(byId("summary"), `${state.cluster}, ${place}: ${count(state.nodes.length, "node")}, ${count(state.vms.length, "VM")}, ${count(active, "active migration")}`);
  showProblems();
  showNodes(state, explain);
  children(byId("moves"), state.moves, (move) => move.namespace + "/" + move.name, createMove, updateMove);
  byId("no-moves").hidden = state.moves.length > 0;
  showTimelines(state, explain);
  children(byId("stream"), state.stream, (entry) => [entry.at, entry.namespace, entry.vm, entry.text].join(" "), createEntry, updateEntry);
}

// Why a VM has its size.

async function explain(vm) {
  explained = vm;
  set(byId("why-heading"), `Why ${shownName(state, vm)} has its size`);
  await refresh();
  if (!byId("why").open) byId("why").showModal();
}

async function refresh() {
  const vm = explained;
  let why = null;
  try {
    const response = await fetch("/why?" + query({ namespace: vm.namespace, name: vm.name }));
    if (response.ok) why = await response.json();
    set(byId("why-note"), why ? "" : await response.text());
  } catch {
    set(byId("why-note"), "the server does not respond");
  }
  if (!why || vm !== explained) return;
  if (!why.scaled) set(byId("why-note"), `scaling is off; turn it on: neonctl vm scale ${vm.name} -n ${vm.namespace} --auto on`);
  const facts = why.facts.flatMap((fact) => [{ name: "dt", text: fact.label }, { name: "dd", text: fact.text }]);
  const replace = (list, items) => list.replaceChildren(...items);
  replace(byId("why").querySelector("dl"), facts.map((fact) => make(fact.name, "", fact.text)));
  const lines = why.decisions.map((one) => `${one.at.slice(11, 23)} ${one.text}${one.reason ? ` (${one.reason})` : ""}`);
  replace(byId("why").querySelector("ol"), (lines.length ? lines : ["none yet"]).map((line) => make("li", "", line)));
}

// States.

function connect() {
  const source = new EventSource("/events?" + query({}));
  const connection = byId("connection");
  source.addEventListener("history", (message) => {
    begin(JSON.parse(message.data));
  });
  source.addEventListener("state", (message) => {
    state = JSON.parse(message.data);
    show();
    if (explained && byId("why").open) refresh();
  });
  // The server ends a stream once in a while, and the browser opens the next one within a second.
  let late = 0;
  source.onopen = () => {
    clearTimeout(late);
    late = 0;
    set(connection, "live");
    connection.className = "";
  };
  source.onerror = () => {
    const ended = source.readyState === EventSource.CLOSED;
    const lost = () => {
      set(connection, ended ? "refused: open the URL that neonctl dashboard printed" : "reconnecting: is neonctl dashboard running?");
      connection.className = "warning";
    };
    // Errors repeat while it is tried again.
    if (ended) lost();
    else late = late || setTimeout(lost, 3000);
  };
}

byId("filter").addEventListener("input", () => state && showTimelines(state, explain));
byId("sort").addEventListener("change", () => state && showTimelines(state, explain));
byId("why").addEventListener("close", () => { explained = null; });
connect();
