// VMs with their last minutes.

import { attribute, byId, bytes, children, keyOf, make, set, short, shownName } from "./text.js";

const SVG = "http://www.w3.org/2000/svg";
// VMs whose timelines are drawn; others are found by the filter.
const MOST = 40;

let state = null;
let explain = null;
let kept = 150;
let step = 2000;
const points = new Map();

// Begins with the history of each VM.
export function begin(history) {
  kept = history.kept;
  step = history.step;
  points.clear();
  for (const vm of history.vms) points.set(keyOf(vm), vm.points);
}

const CPU = { first: 1, label: "CPU", words: short };
const MEMORY = { first: 5, label: "memory", words: bytes };
// As they are drawn, each with its place in a point: the size is the lowest, so that it hides no other.
const LINES = [["load", 0], ["size", 3], ["permit", 2], ["goal", 1]];

function createChart() {
  const figure = make("figure");
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("role", "img");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("viewBox", `0 0 ${kept} 100`);
  for (const [line] of LINES) {
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("class", line);
    svg.append(path);
  }
  figure.append(svg, make("figcaption"));
  return figure;
}

function path(series, index, most, filled) {
  let text = "";
  let open = false;
  const newest = series.length ? series[series.length - 1][0] : 0;
  const x = (point) => kept - (newest - point[0]) / step;
  for (const point of series) {
    const value = point[index];
    if (value === null) { open = false; continue; }
    const at = `${x(point).toFixed(1)} ${(98 - 94 * value / most).toFixed(1)}`;
    text += open ? "L" + at : "M" + at;
    open = true;
  }
  const first = series.find((point) => point[index] !== null);
  return filled && first && text.lastIndexOf("M") === 0 ? `${text}L${kept} 100L${x(first).toFixed(1)} 100Z` : text;
}

function updateChart(figure, series, kind, now) {
  const [svg, caption] = figure.children;
  let most = 0;
  for (const point of series) for (let i = 0; i < 4; i += 1) most = Math.max(most, point[kind.first + i] || 0);
  LINES.forEach(([line, place], i) => {
    attribute(svg.children[i], "d", path(series, kind.first + place, most || 1, line === "load"));
  });
  const of = (name) => (now[name] === null ? "unknown" : kind.words(now[name]));
  const line = `${kind.label} 0..${kind.words(most)}: load ${of("used")}, goal ${of("goal")}, permit ${of("permit")}, size ${of("size")}`;
  set(caption, line);
  attribute(svg, "aria-label", "the last five minutes of " + line);
}

function createTimeline(vm) {
  const card = make("article", "timeline");
  const words = make("div");
  const heading = make("h3");
  const button = make("button");
  button.addEventListener("click", () => explain(vm));
  heading.append(button);
  words.append(heading, make("p", "facts"), make("p", "note"));
  card.append(words, createChart(), createChart());
  return card;
}

function updateTimeline(card, vm) {
  const [words, cpu, memory] = card.children;
  const [heading, facts, note] = words.children;
  set(heading.firstElementChild, shownName(state, vm));
  attribute(heading.firstElementChild, "aria-label", `${shownName(state, vm)}: why this size?`);
  const goal = vm.goalUnits ? `, goal ${vm.goalUnits}` : "";
  set(facts, `${vm.phase} on ${vm.node || "no node"}; ${vm.units} CU${goal}, range ${vm.range}`);
  set(note, vm.problem ? "load unknown: " + vm.problem : vm.state);
  note.className = vm.stuck ? "note warning" : "note";
  const series = points.get(keyOf(vm)) || [];
  updateChart(cpu, series, CPU, vm.cpu);
  updateChart(memory, series, MEMORY, vm.memory);
}

function chosen() {
  const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (vm) => {
    const text = [keyOf(vm), vm.node, vm.phase, vm.state].join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  };
  const largest = (of) => (one, other) => (of(other) ?? -1) - (of(one) ?? -1);
  const order = {
    cpu: largest((vm) => vm.cpu.used),
    memory: largest((vm) => vm.memory.used),
    size: largest((vm) => vm.cpu.size),
    name: () => 0,
    node: (one, other) => one.node.localeCompare(other.node),
  }[byId("sort").value];
  // The server sends them sorted by name, and sorting keeps that order among equals.
  return state.vms.filter(fits).sort(order);
}

// Shows the VMs of a state; `why` is called with a VM that was chosen.
export function showTimelines(now, why) {
  state = now;
  explain = why;
  addPoints();
  const vms = chosen();
  children(byId("timelines"), vms.slice(0, MOST), keyOf, createTimeline, updateTimeline);
  const note = vms.length > MOST ? `${MOST} of ${vms.length} shown: filter to see others` : `${vms.length} of ${state.vms.length} shown`;
  set(byId("shown"), note);
}

function addPoints() {
  const alive = new Set(state.vms.map(keyOf));
  for (const key of points.keys()) if (!alive.has(key)) points.delete(key);
  for (const vm of state.vms) {
    if (!vm.point) continue;
    const series = points.get(keyOf(vm)) || [];
    if (!series.length || series[series.length - 1][0] < vm.point[0]) series.push(vm.point);
    while (series.length > kept) series.shift();
    points.set(keyOf(vm), series);
  }
}
