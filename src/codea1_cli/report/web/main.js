// The overview, and which view is shown.
const HEADLINES = [["code.pass@1", "pass@1"], ["code.pass@n", "pass@n"], ["test.exposed", "exposed"], ["test.soundly_exposed", "soundly exposed"],
  ["near_miss.exposed", "near-miss exposed"], ["near_miss.soundly_exposed", "near-miss soundly exposed"],
  ["test.false_alarm", "false alarm"], ["test.validity", "suite validity"], ["test.stated_correctly", "stated rightly"]];

// What n of pass@n is, where it is the same in all runs.
function solutions() {
  const found = new Set(D.runs.flatMap((run) => (run.tables?.heldout?.y["code.n"] || []).filter(known)));
  return found.size === 1 ? [...found][0] : "n";
}

function headline() {
  const shown = HEADLINES.filter(([key]) => D.runs.some((run) => run.tables?.heldout?.y[key]));
  const rows = D.runs.filter((run) => run.tables?.heldout).map((run) => {
    const own = run.tables.heldout, cell = (key, at) => {
      const value = own.y[key]?.at(at), low = own.low[key]?.at(at), high = own.high[key]?.at(at);
      return [known(value) ? percent(value) : "", known(low) ? `${percent(low, 0)} to ${percent(high, 0)}` : ""];
    };
    const both = (key) => {
      const [before] = cell(key, 0), [after, interval] = cell(key, -1);
      return after ? [h("div", null, own.x.length > 1 ? `${before} → ${after}` : after), h("div", { class: "muted small" }, interval)] : null;
    };
    return [named(run.arm, called(run)), own.x.length > 1 ? `${own.x[0]} → ${own.x.at(-1)}` : own.x[0], ...shown.map(([key]) => both(key))];
  });
  return rows.length ? [h("h2", null, "Held-out problems, in percent"), table(["run", ">steps", ...shown.map(([, words]) => ">" + words.replace("@n", "@" + solutions()))], rows, true)] : null;
}

function runCard(run) {
  const facts = { recipe: run.recipe, method: run.keys["method"], model: run.keys["model"], seed: run.info.seed ?? run.keys["seed"], started: run.started, folder: run.path,
    checkpoints: run.marks.checkpoints.join(", "), "best checkpoint": run.marks.best ? `step ${run.marks.best.step}, ${run.marks.best.figure} ${number(run.marks.best.value, 4)}` : null,
    command: Array.isArray(run.info.command) ? run.info.command.join(" ") : null };
  return h("section", { class: "card" },
    h("h3", null, named(run.arm, called(run))),
    h("p", null, h("span", { class: `badge ${run.state === "failed" ? "bad" : run.state === "running" ? "good" : "muted"}` }, run.state), ` at step ${run.step}${run.total ? ` of ${run.total}` : ""}`),
    run.error ? h("p", { class: "bad" }, run.error) : null,
    run.missing.length ? h("div", { class: "notice" }, h("div", { class: "strong" }, "missing or damaged"), run.missing.map((words) => h("div", null, words))) : null,
    table(["", "wide:"], Object.entries(facts).filter(([, value]) => known(value) && value !== "").map(([name, value]) => [h("span", { class: "muted" }, name), String(value)])),
    (run.events || []).length ? h("details", null, h("summary", null, `what happened: ${counted(run.events.length, "event")}`),
      folded(run.events, 50, (event) => h("div", { class: "row" }, h("span", { class: `badge ${event.kind === "fault" ? "bad" : "warn"}` }, `step ${event.step}`), ` ${event.text}`))) : null,
    h("details", null, h("summary", null, "recipe, with every default"), table(["code:key", "code:value"], Object.entries(run.keys).map(([key, value]) => [key, JSON.stringify(value)]))),
    h("details", null, h("summary", null, "versions, devices, data"), h("pre", null, JSON.stringify(run.info, null, 2))));
}

function overviewView() {
  const apart = Object.entries(D.compare.recipes);
  return [
    headline(),
    apart.length ? [h("h2", null, "What differs in the recipes"), table(["code:key", ...arms().map((arm) => "code:" + arm)], apart.map(([key, values]) => [key, ...values.map((value) => (value === null ? "-" : String(value)))]))] : null,
    h("h2", null, counted(D.runs.length, "run")), h("div", { class: "grid" }, D.runs.map(runCard)),
    h("p", { class: "muted" }, `Made ${D.made} by codea1 ${D.version} from the files of the ${D.runs.length > 1 ? "runs" : "run"} as they were then; texts longer than ${D.limits.text} characters are cut.`),
  ];
}

const VIEWS = { overview: overviewView, curves: curvesView, compare: compareView, problems: problemsView, rollouts: rolloutsView,
  problem: problemView, rollout: rolloutView, evaluated: evaluatedView };
const UNDER = { problem: "problems", rollout: "rollouts", evaluated: "compare" };

function show() {
  const [name, ...rest] = parts(), chosen_ = Object.hasOwn(VIEWS, name) ? name : "overview", under = UNDER[chosen_] || chosen_;
  document.getElementById("views").replaceChildren(...Object.keys(VIEWS).filter((view) => !UNDER[view]).map((view) =>
    h("a", { href: place(view), class: view === under ? "here" : null }, view)));
  const target = document.getElementById("view");
  target.replaceChildren(...[VIEWS[chosen_](...rest)].flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  target.dataset.view = chosen_;
}

async function start() {
  const target = document.getElementById("view");
  try {
    D = await unpacked();
  } catch (error) {
    target.replaceChildren(h("p", { class: "notice" }, `The page's data cannot be unpacked: ${error.message}. A browser of 2023 or later is needed.`));
    return;
  }
  document.title = `codea1 report: ${arms().join(", ")}`;
  document.getElementById("theme").addEventListener("click", () => { setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"); show(); });
  prefersDark.addEventListener("change", () => { setTheme(prefersDark.matches ? "dark" : "light"); show(); });
  addEventListener("hashchange", () => { show(); scrollTo(0, 0); });
  show();
}

start();
