// The stacks of an incident as one tree: places that stacks have in common stand once, with how
// many processes pass through them. It unfolds, and is searched.
import { age, el, refill } from "./dom.js";
import { icicle } from "./icicle.js";

// `verdict` has the culprits' stacks and one of each place where others stand, each with where it
// stood in earlier rounds.
export function stackTree(verdict) {
  const stacks = verdict.stacks || [];
  if (!stacks.length) return [];
  const rounds = roundsOf(stacks), place = el("div", {}), said = el("span", { class: "quiet", role: "status" });
  if (rounds.length < 2) {
    place.append(...drawn(stacks, verdict));
    return [place];
  }
  const picks = [select("round", rounds), select("compared with", rounds, "its last other place")];
  const show = () => {
    const one = Number(picks[0].value), other = picks[1].value === "" ? null : Number(picks[1].value);
    const then = stacks.map((stack) => asOf(stack, one, other)).filter((stack) => stack !== null);
    const moved = then.filter((stack) => movedFrom(stack) !== null).length;
    said.textContent = other === null || one === other ? "" : `${moved} of ${then.length} stacks moved between the two`;
    refill(place, [one, other], () => drawn(then, verdict)); // what is folded and searched stays
  };
  for (const pick of picks) pick.addEventListener("input", show);
  show();
  return [el("p", { class: "filters" }, ...picks.map((pick) => el("label", {}, pick.ariaLabel, pick)), said), place];
}

function drawn(stacks, verdict) {
  const framed = stacks.filter((one) => one.signature.length);
  const bare = stacks.filter((one) => !one.signature.length);
  const root = merged(framed);
  const tree = el("div", { class: "tree" }, ...branches(root, verdict), ...bare.map((one) => end(one, verdict)));
  const others = framed.length > 1 ? [asIcicle(root, verdict), beside(framed, verdict)] : [];
  return [search(tree), tree, ...others];
}

// Which rounds there are, by how many came after them, with how long before the newest that was.
function roundsOf(stacks) {
  const found = new Map([[0, 0]]);
  for (const stack of stacks) for (const look of stack.earlier || []) found.set(look.rounds_before, look.seconds_before);
  return [...found].sort(([a], [b]) => a - b);
}

// The first of its options is chosen.
function select(label, rounds, none = "") {
  const oldest = rounds.at(-1)[0] + 1;
  return el("select", { "aria-label": label, "data-key": label }, none ? el("option", { value: "" }, none) : null,
    ...rounds.map(([number, seconds]) =>
      el("option", { value: number }, `${oldest - number} of ${oldest}, ${number ? `${age(seconds)} before` : "the newest"}`)));
}

// The stack in one round, and what it was in another, or last elsewhere; null if it was not
// readable then. In the newest round one stack stands for all that are alike; where the others were
// before is not known.
function asOf(stack, round, other) {
  if (round === 0 && other === null) return stack;
  const signature = placesIn(stack, round);
  if (signature === null) return null;
  const before = other === null ? elsewhere(stack, round, signature) : placesIn(stack, other);
  const alone = round === 0 ? {} : { alike: 1, label: "", activity: "unknown", error: "" };
  return { ...stack, ...alone, signature, looks: 0, before: before === null || same(signature, before) ? [] : before };
}

function elsewhere(stack, round, signature) {
  const older = (stack.earlier || []).filter((one) => one.rounds_before > round);
  return older.map((one) => placesIn(stack, one.rounds_before)).find((one) => !same(one, signature)) ?? null;
}

function placesIn(stack, round) {
  if (round === 0) return stack.signature;
  const look = (stack.earlier || []).find((one) => one.rounds_before === round);
  return look ? [...stack.signature.slice(0, look.shared), ...look.rest] : null;
}

const same = (one, other) => one.length === other.length && common(one, other) === one.length;

function asIcicle(root, verdict) {
  return el("details", { class: "two", "data-key": "icicle" }, el("summary", {}, "As an icicle"),
    icicle(root, (stack) => culprit(stack, verdict) !== undefined));
}

// Two stacks side by side: what they have in common is quiet, where they part is marked.
function beside(stacks, verdict) {
  const names = stacks.map((one) => `${who(one, culprit(one, verdict))}: ${one.signature.at(-1)}`);
  const pick = (label, chosen) => {
    const select = el("select", { "aria-label": label }, ...names.map((name, index) =>
      el("option", { value: `${stacks[index].process.host} ${stacks[index].process.pid}`, selected: index === chosen ? "" : false }, name)));
    select.addEventListener("input", draw);
    return select;
  };
  const picks = [pick("left stack", 0), pick("right stack", 1)];
  const lists = picks.map(() => el("ol"));
  function draw() {
    const shown = picks.map((select) => stacks[select.selectedIndex]);
    const shared = common(shown[0].signature, shown[1].signature);
    lists.forEach((list, side) => list.replaceChildren(...shown[side].signature.map((place, index) =>
      el("li", { class: index < shared ? "quiet" : "" }, el("code", {}, place)))));
  }
  draw();
  return el("details", { class: "two", "data-key": "two" }, el("summary", {}, "Two places side by side"),
    el("div", { class: "beside" }, ...picks.map((select, side) => el("div", {}, select, lists[side]))));
}

function common(one, other) {
  let length = 0;
  while (length < one.length && one[length] === other[length]) length += 1;
  return length;
}

// From which of its frames on a stack has moved over the rounds; null if it has not.
function movedFrom(stack) {
  return stack.before?.length ? common(stack.signature, stack.before) : null;
}

function merged(stacks) {
  const root = { place: "", count: 0, children: new Map(), ends: [] };
  for (const stack of stacks) {
    let node = root;
    const moved = movedFrom(stack);
    stack.signature.forEach((place, index) => {
      if (!node.children.has(place)) node.children.set(place, { place, count: 0, moved: false, children: new Map(), ends: [] });
      node = node.children.get(place);
      node.count += stack.alike;
      node.moved ||= moved !== null && index >= moved;
    });
    node.ends.push(stack);
  }
  return root;
}

// The rarest first: a culprit is seldom in the majority.
function branches(node, verdict) {
  return [...node.children.values()].sort((a, b) => a.count - b.count).map((one) => branch(one, verdict));
}

// A run of places without a fork is one branch, named by its innermost place.
function branch(node, verdict) {
  const outer = [];
  while (!node.ends.length && node.children.size === 1) {
    outer.push(node);
    [node] = node.children.values();
  }
  const above = outer.length ? el("details", { class: "outer", "data-key": "above" },
    el("summary", {}, `${outer.length} frame${outer.length > 1 ? "s" : ""} above`),
    el("ol", {}, ...outer.map((one) => el("li", {}, frame(one))))) : null;
  return el("details", { class: "branch", open: "", "data-key": node.place },
    el("summary", {}, el("b", { title: "processes" }, String(node.count)), frame(node)),
    el("div", {}, above, ...node.ends.map((one) => end(one, verdict)), ...branches(node, verdict)));
}

function frame(node) {
  return el("code", node.moved ? { class: "moved", title: "was not here in a round before" } : {}, node.place);
}

function end(stack, verdict) {
  const named = culprit(stack, verdict);
  const does = stack.error || stack.label || stack.activity;
  return el("p", { class: named ? "end t-bad" : "end" }, el("span", {}, who(stack, named)),
    el("span", { class: "quiet" }, does === "unknown" ? "" : does), rounds(stack));
}

// What the rounds showed of the one that is shown.
function rounds(stack) {
  const of = stack.alike > 1 && stack.rank ? `rank ${stack.rank.rank} ` : "";
  if (movedFrom(stack) !== null) {
    return el("span", { class: "t-moved" }, `${of}moved: it was in ${stack.before.at(-1)}`);
  }
  return stack.looks > 1 ? el("span", { class: "quiet" }, `${of}the same in ${stack.looks} rounds`) : null;
}

// A pid alone tells nobody apart: containers on different nodes give the same ones.
function culprit(stack, verdict) {
  const { host, pid } = stack.process;
  return verdict.culprits.find((one) => one.pid === pid &&
    (stack.rank ? one.rank === stack.rank.rank : one.host === host));
}

function who(stack, named) {
  if (stack.alike > 1) return `ranks ${stack.alike_ranks}`;
  if (stack.rank) return `rank ${stack.rank.rank}`;
  const { host, pid } = stack.process;
  return named?.actor || named?.role || `pid ${pid} on ${host}`;
}

function search(tree) {
  const input = el("input", { type: "search", placeholder: "function or file", "aria-label": "search the stacks" });
  const found = el("span", { class: "quiet", role: "status" });
  input.addEventListener("input", () => {
    const wanted = input.value.trim().toLowerCase();
    let hits = 0;
    for (const code of tree.querySelectorAll("code")) {
      const hit = wanted !== "" && code.textContent.toLowerCase().includes(wanted);
      code.classList.toggle("hit", hit);
      if (!hit) continue;
      hits += 1;
      for (let at = code.parentElement; at !== tree; at = at.parentElement) if (at.matches("details")) at.open = true;
    }
    found.textContent = wanted === "" ? "" : `${hits} place${hits === 1 ? "" : "s"}`;
  });
  return el("p", { class: "search" }, input, found);
}
