// Elements, numbers and texts. Texts from the cluster are set as text only, never as markup.

export const token = new URLSearchParams(location.search).get("token") || "";
export const query = (values) => new URLSearchParams({ token, ...values }).toString();
export const byId = (id) => document.getElementById(id);
export const keyOf = (vm) => vm.namespace + "/" + vm.name;

export function make(name, kind, text) {
  const element = document.createElement(name);
  if (kind) element.className = kind;
  if (text !== undefined) element.textContent = text;
  return element;
}

export function set(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function attribute(element, name, value) {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

// One child for each item, in order; a child stays with its key, so that focus and animations stay too.
export function children(parent, items, key, create, update) {
  const before = new Map(Array.from(parent.children, (child) => [child.dataset.key, child]));
  let last = null;
  for (const item of items) {
    const name = key(item);
    let child = before.get(name);
    before.delete(name);
    if (!child) {
      child = create(item);
      child.dataset.key = name;
    }
    const next = last ? last.nextElementSibling : parent.firstElementChild;
    if (child !== next) parent.insertBefore(child, next);
    update(child, item);
    last = child;
  }
  for (const child of before.values()) child.remove();
}

export function short(number) {
  if (number === null || number === undefined) return "?";
  return number >= 9.95 ? number.toFixed(0) : String(Number(number.toFixed(2)));
}

export function bytes(number) {
  if (number === null || number === undefined) return "?";
  const units = ["", "Ki", "Mi", "Gi", "Ti"];
  let unit = 0;
  while (number >= 921 && unit + 1 < units.length) { number /= 1024; unit += 1; }
  return (number >= 9.95 || unit === 0 ? number.toFixed(0) : String(Number(number.toFixed(1)))) + units[unit];
}

export const percent = (share) => Math.max(0, Math.min(100, 100 * share)).toFixed(1) + "%";
export const share = (amount, whole) => (whole > 0 && amount !== null ? amount / whole : 0);
export const clock = (at) => new Date(at).toISOString().slice(11, 19);
// The name of a VM; with its namespace if those of all are shown.
export const shownName = (state, vm) => (state.namespace === null ? keyOf(vm) : vm.name);
