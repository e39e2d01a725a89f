// Problems: all of a run, and of those in the page the candidates over time, the Mistake Book and the pool.
const listed = { run: 0, find: "", order: "mistakes", kept: false };

function question(asked) {
  return h("details", { open: true }, h("summary", null, "question"), h("pre", null, text(asked.question), "\n\n", text(asked.declaration)),
    text(asked.reference) ? h("details", null, h("summary", null, "reference"), h("pre", null, text(asked.reference))) : null);
}

function problemsView() {
  const list = h("div", null), bar = h("div", { class: "bar" });
  const draw = () => {
    const run = runAt(listed.run), rows = (run.problems || []).map((one) => ({ ...one, first: one.rewards.find(known), last: one.rewards.findLast(known), kept: Boolean(run.rollouts?.[one.id]) }));
    const orders = {
      mistakes: (a, b) => b.mistakes - a.mistakes, gain: (a, b) => gain(b) - gain(a), loss: (a, b) => gain(a) - gain(b),
      sampled: (a, b) => b.sampled - a.sampled, id: () => 0,
    };
    const gain = (one) => (known(one.first) && known(one.last) ? one.last - one.first : 0);
    const found = rows.filter((one) => one.id.toLowerCase().includes(listed.find) && (one.kept || !listed.kept));
    found.sort((a, b) => orders[listed.order](a, b) || a.id.localeCompare(b.id));
    const shown = found.slice(0, 300);
    list.replaceChildren(
      h("p", { class: "muted" }, `${counted(found.length, "problem")}${found.length > shown.length ? `, ${shown.length} of them here` : ""}; linked ones have their rollouts in the page. ${keptRule(run)}`),
      table(["wide:problem", ">sampled", ">reward, first", ">last", ">tests in the book", ">mistakes", ">pool"], shown.map((one) => [
        one.kept ? link(one.id, "problem", listed.run, one.id) : one.id, counted(one.sampled, "time"), number(one.first), number(one.last), one.tests, one.mistakes, one.pool])));
  };
  bar.append(
    D.runs.length > 1 ? choice("run", runChoices(), listed.run, (value) => { listed.run = Number(value); draw(); }) : "",
    search("find a problem", listed.find, (value) => { listed.find = value.toLowerCase(); draw(); }),
    choice("by", [["mistakes", "mistakes"], ["gain", "gain in reward"], ["loss", "loss in reward"], ["sampled", "times sampled"], ["id", "name"]], listed.order, (value) => { listed.order = value; draw(); }),
    box("with rollouts here", listed.kept, (on) => { listed.kept = on; draw(); }));
  draw();
  return [bar, list];
}

function keptRule(run) {
  const { steps, problems, shown } = run.kept || {};
  if (!steps || shown >= problems) return "";
  return `Of ${counted(problems, "problem")} in the rollouts of ${counted(steps, "step")}, ${shown} are here, taken by a hash of their ids, ` +
    `each at up to ${D.limits.steps} of its steps; codea1 report --problem ID adds one, --size MB makes room for more.`;
}

// What is said of a list that is longer than what the page shows of it.
const left = (count, shown) => (count > shown.length ? `, ${shown.length} of them here` : "");

// Red for no reward, green for all of it.
function rewardCell(at, id, one) {
  const share = known(one.reward) ? Math.max(0, Math.min(1, one.reward)) : null;
  const cell = h("a", { class: `cell ${share === null ? "none" : ""}`, href: place("rollout", at, id, one.step, one.index),
    title: `candidate ${one.index}, reward ${number(one.reward)}` }, known(one.reward) ? one.reward.toFixed(1) : "–");
  if (share !== null) cell.style.background = `hsl(${Math.round(120 * share)} 55% 68%)`;
  return cell;
}

function problemView(at, id) {
  const run = runAt(at), own = run.rollouts?.[id] || [], summary = (run.problems || []).find((one) => one.id === id), book = run.books?.[id];
  const steps = [...new Set(own.map((one) => one.step))];
  const curve = (title, x, figures) => chartOf(title, x, figures);
  return [
    h("p", null, link("all problems", "problems"), D.runs.length > 1 ? [" in other runs: ", D.runs.map((other, place_) => (place_ !== Number(at) && other.rollouts?.[id] ? [link(called(other), "problem", place_, id), " "] : null))] : null),
    h("h2", null, id, D.runs.length > 1 ? ` in ${called(run)}` : ""),
    run.questions?.[id] ? question(run.questions[id]) : h("p", { class: "muted" }, "The problem's text is not in the page."),
    h("h3", null, "Candidates over time"),
    h("p", { class: "muted" }, "A row per step that is kept, a square per candidate with its reward."),
    table([">step", "candidates"], steps.map((step) => [step, h("div", { class: "cells" }, own.filter((one) => one.step === step).map((one) => rewardCell(at, id, one)))])),
    h("div", { class: "grid" },
      summary && summary.steps.length > 1 ? curve("Mean reward of its candidates", summary.steps, { reward: summary.rewards }) : null,
      book && book.trend.length > 1 ? curve("Mistake Book", book.trend.map((one) => one[0]), { tests: book.trend.map((one) => one[1]), mistakes: book.trend.map((one) => one[2]) }) : null),
    book ? [
      h("h3", null, `Mistake Book: ${counted(book.tests, "live test")}${left(book.tests, book.live)}`),
      book.live.length ? table(["code:test", ">count", ">since step", ">last changed"], book.live.map(([test, ...counts]) => [text(test), ...counts])) : h("p", { class: "muted" }, "none: every mistake has been learned, or none was found"),
      book.retired.length ? h("details", null, h("summary", null, counted(book.left, "retired test") + left(book.left, book.retired)), table(["code:test", ">highest count", ">since step", ">gone at step"], book.retired.map(([test, ...counts]) => [text(test), ...counts]))) : null,
      h("h3", null, `Pool: ${counted(book.pool.length, "wrong program")}`),
      book.pool.map(([name, step, code, evidence, ownTest]) => h("details", null, h("summary", null, `${name}, since step ${step}`),
        h("p", null, `fails ${ownTest ? "the problem's own test" : "the validated test"} `, h("code", null, text(evidence))), h("pre", null, text(code)))),
    ] : null,
  ];
}

// A chart of one problem's own numbers.
function chartOf(title, x, figures) {
  const names = Object.keys(figures), y = Object.fromEntries(names.map((name) => [name, figures[name]]));
  const panel = { title, table: "own", share: false, figures: Object.fromEntries(names.map((name) => [name, name])) };
  const real = D.runs;
  D.runs = [{ arm: "own", name: "own", tables: { own: { x, y, low: {}, high: {}, bucket: 1 } }, marks: { checkpoints: [] } }];
  try {
    return chart(panel);
  } finally {
    D.runs = real;
  }
}
