// Compare: what `codea1 compare` says of these runs, and which problems were won and lost.
const LOWER_IS_BETTER = new Set(["false alarm"]);
const plain = (figure) => figure === "asserts per suite";

function difference(one, figure) {
  if (!one) return "";
  const scale = plain(figure) ? 1 : 100, signed = (value) => (value >= 0 ? "+" : "") + (scale * value).toFixed(1);
  const sure = one.low > 0 || one.high < 0, better = (one.mean > 0) !== LOWER_IS_BETTER.has(figure);
  return h("span", { class: sure ? `strong ${plain(figure) ? "" : better ? "good" : "bad"}` : null }, signed(one.mean), " ", h("span", { class: "interval" }, `(${signed(one.low)} to ${signed(one.high)})`));
}

const inShort = (values) => (values.length < 4 ? values.join(", ") : `${values.length}: ${values[0]} to ${values.at(-1)}`);

function comparedSet(kind, rows) {
  if (!Array.isArray(rows)) return [h("h2", null, kind), h("p", { class: "notice" }, rows.error)];
  const several = arms().length > 1, first = arms()[0];
  // Beside a run its steps, where they differ or training had begun before the first of them.
  const told = ["before", "after"].filter((side) => { const at = new Set(rows.flatMap((row) => row.steps[side])); return at.size > 1 || (side === "before" && [...at].some(Boolean)); });
  const steps = (row) => told.filter((side) => row.steps[side].length).map((side) => `${side} step ${inShort(row.steps[side])}`).join(", ");
  const beside = (row) => named(row.run, steps(row) ? `${row.run} (${steps(row)})` : row.run);
  const level = (value, figure) => (known(value) ? ((plain(figure) ? 1 : 100) * value).toFixed(1) : "");
  const cells = rows.flatMap((row, at) => [
    several && row.figure !== rows[at - 1]?.figure ? row.figure : null,
    [several ? beside(row) : row.figure, level(row.before, row.figure), level(row.after, row.figure),
      difference(row.gain, row.figure), ...(several ? [difference(row.against, row.figure)] : [])],
  ]).filter(known);
  return [
    h("h2", null, kind),
    table([several ? "figure, run" : "figure", ">before", ">after", ">gain", ...(several ? [`>against ${first}`] : [])], cells),
  ];
}

// A run's or an arm's name in its colour.
function named(arm, words) {
  const swatch = h("span", { class: "swatch" });
  swatch.style.color = runColour({ arm });
  return h("span", { class: "name" }, swatch, words);
}

// -- problems won and lost ---------------------------------------------------------------------------------------------
// The sides that can be set against each other: every arm at its first and its last evaluation of a set.
function sidesOf(kind) {
  return arms().flatMap((arm) => {
    const runs = D.runs.filter((run) => run.arm === arm && run.sets?.[kind]);
    if (!runs.length) return [];
    const twice = runs.every((run) => run.sets[kind].steps.length > 1);
    const side = (end, words) => ({ name: `${arm}${words}`, arm, runs, end });
    return twice ? [side("first", " before"), side("last", " after")] : [side("last", "")];
  });
}

// By problem, the mean over a side's runs of the share of a figure.
function sharesOf(side, kind, figure) {
  const found = new Map();
  for (const run of side.runs) {
    const own = run.sets[kind], values = own.figures[figure]?.at(side.end === "first" ? 0 : -1);
    own.problems.forEach((id, at) => known(values?.[at]) && found.set(id, [...(found.get(id) || []), values[at]]));
  }
  return new Map([...found].map(([id, values]) => [id, mean(values)]));
}

const contrast = { kind: null, figure: null, one: null, other: null, show: "moved", find: "" };

function wonAndLost() {
  const kinds = [...new Set(D.runs.flatMap((run) => Object.keys(run.sets || {})))];
  if (!kinds.length) return h("p", { class: "muted" }, "No evaluation of these runs is kept by problem.");
  const whole = h("div", null);
  const draw = () => {
    if (!kinds.includes(contrast.kind)) contrast.kind = kinds[0];
    const kind = contrast.kind, sides = sidesOf(kind);
    const figures = [...new Set(D.runs.flatMap((run) => Object.keys(run.sets?.[kind]?.figures || {})))];
    if (!figures.includes(contrast.figure)) contrast.figure = figures[0];
    const last = sides.filter((side) => side.end === "last");
    const alike = (a, b) => [...sharesOf(a, kind, contrast.figure).keys()].some((id) => sharesOf(b, kind, contrast.figure).has(id));
    const fresh = last.length > 1 && alike(last[0], last[1]) ? [last[0], last[1]] : [sides[0], sides.findLast((side) => side.arm === sides[0].arm)];
    const pick = (name, fallback) => sides.find((side) => side.name === name) || fallback;
    const one = pick(contrast.one, fresh[0]), other = pick(contrast.other, fresh[1]);
    const before = sharesOf(one, kind, contrast.figure), after = sharesOf(other, kind, contrast.figure);
    const sign = LOWER_IS_BETTER.has(contrast.figure) ? -1 : 1;
    const rows = [...before.keys()].filter((id) => after.has(id)).map((id) => ({ id, from: before.get(id), to: after.get(id), moved: sign * (after.get(id) - before.get(id)) }));
    const won = rows.filter((row) => row.moved > 0), lost = rows.filter((row) => row.moved < 0);
    const kept = { moved: rows.filter((row) => row.moved), won, lost, all: rows }[contrast.show].filter((row) => row.id.toLowerCase().includes(contrast.find));
    kept.sort((a, b) => Math.abs(b.moved) - Math.abs(a.moved) || a.id.localeCompare(b.id));
    const set = (name) => (value) => { contrast[name] = value; draw(); };
    const names = sides.map((side) => [side.name, side.name]);
    const level = (value) => (plain(contrast.figure) ? value.toFixed(1) : percent(value, 0));
    const list = h("div", null), fill = () => list.replaceChildren(folded(kept, 100, (row) => h("div", { class: "row" },
      h("span", { class: `badge ${row.moved > 0 ? "good" : row.moved < 0 ? "bad" : "muted"}` }, `${level(row.from)} → ${level(row.to)}`), " ",
      link(row.id, "evaluated", kind, row.id))));
    fill();
    whole.replaceChildren(
      h("div", { class: "bar" },
        kinds.length > 1 ? choice("set", kinds.map((name) => [name, name]), kind, set("kind")) : null,
        choice("figure", figures.map((name) => [name, name]), contrast.figure, set("figure")),
        choice("from", names, one.name, set("one")), choice("to", names, other.name, set("other")),
        choice("show", [["moved", "won and lost"], ["won", "won"], ["lost", "lost"], ["all", "all"]], contrast.show, set("show"))),
      rows.length ? h("p", { id: "score" }, h("span", { class: "good strong" }, `${won.length} won`), ", ", h("span", { class: "bad strong" }, `${lost.length} lost`), `, ${rows.length - won.length - lost.length} alike of ${counted(rows.length, "problem")}`) : h("p", { id: "score", class: "muted" }, "No problem gives this figure on both sides."),
      list);
  };
  draw();
  return whole;
}

function compareView() {
  const found = D.compare;
  return [
    found.error ? h("p", { class: "notice" }, `not compared in full: ${found.error}`) : null,
    found.runs.length ? [h("h2", null, "A run of each"), table(["run", ">seeds", ">steps", ">hours", ">tokens", ">GPU hours"], found.runs.map((one) =>
      [named(one.run, one.run), inShort(one.seeds), inShort(one.steps), (one.seconds / 3600).toFixed(2), Math.round(one.tokens).toLocaleString("en"), one.gpu_hours.toFixed(2)]))] : null,
    Object.entries(found.sets).map(([kind, rows]) => comparedSet(kind, rows)),
    Object.keys(found.sets).length ? h("p", { class: "muted" }, "Gains and differences with paired 95 % intervals over problems and seeds; bold where the interval leaves out zero.") : null,
    h("h2", null, "Problems won and lost"), wonAndLost(),
  ];
}

// One evaluated problem: its figures in every run, and what the Code LLM answered where the texts are kept.
function evaluatedView(kind, id) {
  const asked = D.runs.map((run) => run.questions?.[id]).find(Boolean);
  const rows = D.runs.flatMap((run) => {
    const own = run.sets?.[kind], at = own ? own.problems.indexOf(id) : -1;
    if (at < 0) return [];
    return own.steps.map((step, end) => [named(run.arm, called(run)), step,
      ...figureNames(kind).map((name) => { const value = own.figures[name]?.[end][at]; return known(value) ? (plain(name) ? value.toFixed(1) : percent(value, 0)) : ""; })]);
  });
  const samples = kind !== "heldout" ? [] : D.runs.flatMap((run) => {
    const own = run.samples?.[id] || [];
    return [...new Set(own.map((one) => `${one.step} ${one.part}`))].map((group) => {
      const [step, part] = group.split(" "), those = own.filter((one) => one.step === Number(step) && one.part === part);
      const good = those.filter((one) => one.good).length, words = part === "code" ? `${good} of ${counted(those.length, "solution")} pass` : `${good} of ${counted(those.length, "suite")} expose ${part === "test" ? "their wrong program" : "their near-miss program"}`;
      return h("details", null, h("summary", null, named(run.arm, called(run)), `, step ${step}: ${words}`), those.map((one) => h("section", { class: "suite" },
        h("div", null, part === "code" ? verdict(one.good ? "passed" : "failed") : [one.good ? h("span", { class: "badge good" }, "exposed") : h("span", { class: "badge muted" }, "not exposed"), " ", one.alarm ? h("span", { class: "badge warn" }, "false alarm") : null]),
        known(one.program) ? h("details", null, h("summary", null, "the wrong program"), h("pre", null, text(one.program))) : null,
        h("pre", null, text(one.reply)))));
    });
  });
  return [
    h("p", null, link("back to all problems", "compare")), h("h2", null, `${kind}: ${id}`), asked ? question(asked) : null,
    table(["run", ">step", ...figureNames(kind).map((name) => ">" + name)], rows, true),
    h("h3", null, "What the policies answered"), samples.length ? samples : h("p", { class: "muted" }, "No texts of this problem's evaluation are in the page."),
  ];
}

const figureNames = (kind) => [...new Set(D.runs.flatMap((run) => Object.keys(run.sets?.[kind]?.figures || {})))];
