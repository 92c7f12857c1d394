// Nodes, and the VMs on them as boxes.

import { attribute, byId, bytes, children, keyOf, make, percent, set, share, short, shownName } from "./text.js";

const calm = matchMedia("(prefers-reduced-motion: reduce)");
let state = null;
let explain = null;

function createMeter(label) {
  const meter = make("div", "meter");
  const track = make("div", "track");
  track.setAttribute("role", "img");
  for (const kind of ["permitted", "used", "pressure", "mark"]) track.append(make("div", kind));
  meter.append(make("span", "", label), track, make("span", "words"));
  return meter;
}

function updateMeter(meter, label, one, words) {
  const [, track, text] = meter.children;
  const [permitted, used, pressure, mark] = track.children;
  const end = share(Math.max(one.permitted, one.used), one.total);
  const missing = Math.min(1, share(one.pressure, one.total));
  const place = (element, left, width) => { element.style.left = percent(left); element.style.width = percent(width); };
  place(used, 0, share(one.used, one.total));
  place(permitted, 0, share(one.permitted, one.total));
  place(pressure, Math.min(end, 1 - missing), missing);
  mark.hidden = one.watermark === null;
  mark.style.left = percent(share(one.watermark, one.total));
  let line = `${words(one.used)} used, ${words(one.permitted)} permitted of ${words(one.total)}`;
  if (one.pressure > 0) line += `, ${words(one.pressure)} missing`;
  if (one.watermark !== null) line += `, watermark ${words(one.watermark)}`;
  set(text, line);
  attribute(track, "aria-label", label + ": " + line);
}

function createNode() {
  const card = make("article", "node");
  card.append(make("h3"), createMeter("CPU"), createMeter("memory"), make("p", "note"), make("div", "boxes"));
  return card;
}

function updateNode(card, node) {
  const [heading, cpu, memory, note, boxes] = card.children;
  set(heading, node.name + (node.closed ? ` (takes no pods: ${node.closed})` : ""));
  cpu.hidden = memory.hidden = !node.cpu;
  if (node.cpu) {
    updateMeter(cpu, "CPU", node.cpu, short);
    updateMeter(memory, "memory", node.memory, bytes);
  }
  set(note, node.note || "");
  note.hidden = !node.note;
  children(boxes, node.vms, (vm) => (vm.arriving ? "to:" : "") + keyOf(vm), createBox, (box, vm) => updateBox(box, vm, node));
}

function createBox(vm) {
  const box = make(vm.arriving ? "div" : "button", "vm");
  box.append(make("div", "load"), make("span", "name"), make("span", "size"), make("span", "use"));
  if (!vm.arriving) box.addEventListener("click", () => explain(vm));
  return box;
}

function updateBox(box, vm, node) {
  const [load, name, size, use] = box.children;
  const used = share(vm.cpu.used, vm.cpu.size);
  box.className = "vm" + (vm.arriving ? " arriving" : vm.move ? " moving" : vm.running ? "" : " stopped");
  box.style.width = percent(share(vm.cpu.size || vm.cpu.min, node.cpu ? node.cpu.total : 0));
  load.style.width = percent(vm.arriving ? (vm.move.percent || 0) / 100 : used);
  set(name, shownName(state, vm));
  const goal = vm.goalUnits ? ` → ${vm.goalUnits}` : "";
  set(size, vm.running ? `${vm.units}${goal} CU` : vm.phase);
  let line = vm.cpu.used === null ? "" : `CPU ${(100 * used).toFixed(0)}%`;
  if (vm.move) line = vm.arriving ? `arrives: ${vm.move.percent || 0}%` : `→ ${vm.move.target || "?"} ${vm.move.percent || 0}%`;
  if (vm.stuck && !vm.move) line = "stuck";
  set(use, line);
  if (!vm.arriving) attribute(box, "aria-label", `${shownName(state, vm)}, ${size.textContent}, ${line}. Why this size?`);
}

// Where each box was, so that one that is on another node slides there.
function places() {
  const all = new Map();
  for (const box of document.querySelectorAll(".vm:not(.arriving)")) {
    all.set(box.dataset.key, { box, parent: box.parentElement, place: box.getBoundingClientRect() });
  }
  return all;
}

function slide(before) {
  if (calm.matches) return;
  for (const box of document.querySelectorAll(".vm:not(.arriving)")) {
    const old = before.get(box.dataset.key);
    if (!old || old.parent === box.parentElement) continue;
    const now = box.getBoundingClientRect();
    const from = `translate(${old.place.left - now.left}px, ${old.place.top - now.top}px)`;
    box.animate([{ transform: from, zIndex: 1 }, { transform: "none", zIndex: 1 }], { duration: 900, easing: "ease-in-out" });
  }
}

// Shows the nodes of a state; `why` is called with a VM that was chosen.
export function showNodes(now, why) {
  state = now;
  explain = why;
  const before = places();
  const active = new Map(state.moves.filter((move) => !move.ended).map((move) => [move.namespace + "/" + move.vm, move]));
  const vms = state.vms.map((vm) => ({ ...vm, move: active.get(keyOf(vm)) || null }));
  const nodes = state.nodes.map((node) => ({
    ...node,
    vms: vms.flatMap((vm) => {
      if (vm.node === node.name) return [vm];
      return vm.move && vm.move.target === node.name ? [{ ...vm, arriving: true }] : [];
    }),
  }));
  const known = new Set(state.nodes.map((node) => node.name));
  const homeless = vms.filter((vm) => !known.has(vm.node));
  if (homeless.length) nodes.push({ name: "without a node", closed: null, note: null, cpu: null, vms: homeless });
  children(byId("nodes"), nodes, (node) => node.name, createNode, updateNode);
  slide(before);
}
