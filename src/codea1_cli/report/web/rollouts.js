// Rollouts: candidates with their suites, found by filters and words, and a reader of one of them.
const sought = { run: 0, find: "", step: "all", exposed: false, alarm: false, unscored: false, broken: false };

const verdict = (name) => h("span", { class: `badge ${name === "passed" ? "good" : name === "unscored" || !name ? "warn" : "bad"}` }, name || "not run");
const unscored = (one) => !known(one.reward) || one.suites.some((suite) => !known(suite.reward));

function matches(id, one) {
  if (sought.step !== "all" && one.step !== Number(sought.step)) return false;
  if (sought.exposed && !one.suites.some((suite) => suite.exposes)) return false;
  if (sought.alarm && !one.suites.some((suite) => suite.alarm)) return false;
  if (sought.unscored && !unscored(one)) return false;
  if (sought.broken && one.loaded !== false) return false;
  if (!sought.find) return true;
  const has = (words) => words.toLowerCase().includes(sought.find);
  return has(id) || has(text(one.reply)) || one.suites.some((suite) => has(text(suite.text)));
}

function summaryOf(at, id, one) {
  const exposing = one.suites.filter((suite) => suite.exposes).length, alarms = one.suites.filter((suite) => suite.alarm).length;
  return h("div", { class: "row" }, link(`step ${one.step}, ${id}, candidate ${one.index}`, "rollout", at, id, one.step, one.index), " ",
    h("span", { class: "muted" }, `reward ${number(one.reward)}`), " ",
    one.loaded === false ? h("span", { class: "badge bad" }, "does not load") : null, " ", one.wrong ? h("span", { class: "badge bad" }, "known to be wrong") : null, " ",
    exposing ? h("span", { class: "badge good" }, `exposed by ${counted(exposing, "suite")}`) : null, " ",
    alarms ? h("span", { class: "badge warn" }, counted(alarms, "false alarm")) : null, " ", unscored(one) ? h("span", { class: "badge warn" }, "unscored") : null);
}

function rolloutsView() {
  const list = h("div", { id: "found" }), bar = h("div", { class: "bar" });
  const draw = () => {
    const run = runAt(listed.run), every = Object.entries(run.rollouts || {}).flatMap(([id, own]) => own.map((one) => [id, one]));
    const found = every.filter(([id, one]) => matches(id, one)).sort(([a, one], [b, other]) => one.step - other.step || a.localeCompare(b) || one.index - other.index);
    list.replaceChildren(h("p", { class: "muted" }, `${found.length} of ${counted(every.length, "candidate")}. ${keptRule(run)}`), folded(found, 100, ([id, one]) => summaryOf(listed.run, id, one)));
    const steps = [...new Set(every.map(([, one]) => one.step))].sort((a, b) => a - b);
    const set = (name) => (value) => { sought[name] = value; draw(); };
    if (!bar.childElementCount || bar.dataset.run !== String(listed.run)) {
      bar.dataset.run = listed.run;
      bar.replaceChildren(
        D.runs.length > 1 ? choice("run", runChoices(), listed.run, (value) => { listed.run = Number(value); sought.step = "all"; draw(); }) : "",
        search("find in problems, replies and suites", sought.find, (value) => { sought.find = value.toLowerCase(); draw(); }),
        choice("step", [["all", "all"], ...steps.map((step) => [step, step])], sought.step, set("step")),
        box("exposed", sought.exposed, set("exposed")), box("false alarms", sought.alarm, set("alarm")),
        box("unscored", sought.unscored, set("unscored")), box("does not load", sought.broken, set("broken")));
    }
  };
  draw();
  return [bar, list];
}

// -- one candidate -----------------------------------------------------------------------------------------------------
function testsTable(tests, own) {
  const why = tests.some(([, , , , , , reason]) => text(reason)) ? ["wide:left out because"] : [];
  return table(["code:test", "verdict", "code:it gave", "code:right answer", ...(own ? [] : ["stated", ...why])], tests.map(([test, said, valid, stated, expected, got, reason, answer]) => [
    text(test), valid || said ? verdict(said) : h("span", { class: "badge muted" }, "invalid"), text(got), text(expected),
    ...(own ? [] : [known(stated) ? h("span", { class: stated ? "good" : "bad" }, stated ? "rightly" : ["wrongly", known(answer) ? [": ", h("code", null, text(answer))] : null]) : "", ...why.map(() => text(reason))])]), true);
}

function suiteView(run, suite, number_, candidate) {
  const valid = suite.tests.filter(([, , ok]) => ok), ran = valid.filter(([, said]) => said && said !== "unscored");
  const passed = ran.filter(([, said]) => said === "passed").length;
  const earned = run.alpha * suite.validity + (1 - run.alpha) * suite.kill;
  const rest = known(suite.reward) && candidate.loaded ? suite.reward - earned : 0;
  const part = (weight, words, value) => `${number(weight)} × ${words} ${number(value)}`;
  return h("section", { class: "suite" },
    h("div", null, h("span", { class: "strong" }, `suite ${number_ + 1}`), ": reward ", h("span", { class: "strong" }, number(suite.reward)), " ",
      known(suite.reward) && candidate.loaded ? h("span", { class: "muted" }, `= ${part(run.alpha, "validity", suite.validity)} + ${part(1 - run.alpha, "kill", suite.kill)}${Math.abs(rest) > 0.0005 ? ` ${rest < 0 ? "−" : "+"} ${number(Math.abs(rest))} for the rest, such as characters outside ASCII` : ""}; `) : null,
      h("span", { class: "muted" }, `the candidate passes ${passed} of ${ran.length}`), " ",
      suite.exposes ? h("span", { class: "badge good" }, "exposes the candidate") : null, " ", suite.alarm ? h("span", { class: "badge warn" }, "false alarm") : null, " ",
      !known(suite.reward) ? h("span", { class: "badge warn" }, "unscored") : null,
      suite.breaks.length ? h("span", { class: "muted" }, ` breaks ${suite.breaks.join(", ")} of the pool`) : null),
    suite.tests.length ? testsTable(suite.tests, false) : h("p", { class: "muted" }, "no assert was read"),
    h("details", null, h("summary", null, "as the Test LLM wrote it"), h("pre", null, text(suite.text))));
}

// What a candidate's reward is made of, in words; `=` where the verdicts in the page give it to the digit.
function earned(one) {
  const share = (tests) => { const ran = tests.filter(([, said]) => said && said !== "unscored"); return ran.length ? ran.filter(([, said]) => said === "passed").length / ran.length : null; };
  const book = share(one.book), each = one.suites.map((suite) => share(suite.tests.filter(([, , valid]) => valid)));
  const whole = mean(each.map((own) => mean([book, own]))), told = known(whole) && known(one.reward) && Math.abs(whole - one.reward) < 0.0006;
  if (!told) return "by the mean over its suites of the share of their valid tests that it passes, with the book's where there are some; ";
  if (!known(book)) return "= the mean over its suites of the share of their valid tests that it passes; ";
  return each.every(known) ? `= ½ × ${number(mean(each))} for its suites' valid tests + ½ × ${number(book)} for the Mistake Book's; ` : `= the mean over its suites of each one's share and the Mistake Book's, ${number(book)}; `;
}

function rolloutView(at, id, step, index) {
  const run = runAt(at), own = run.rollouts?.[id] || [], one = own.find((other) => other.step === Number(step) && other.index === Number(index));
  if (!one) return [h("p", { class: "notice" }, "This candidate is not in the page.")];
  const where = own.indexOf(one), step_ = (other, words) => (other ? link(words, "rollout", at, id, other.step, other.index) : h("span", { class: "muted" }, words));
  const passes = (tests) => { const ran = tests.filter(([, said]) => said && said !== "unscored"); return `${ran.filter(([, said]) => said === "passed").length} of ${ran.length}`; };
  return [
    h("div", { class: "bar" }, link("all rollouts", "rollouts"), link("the problem", "problem", at, id), step_(own[where - 1], "previous"), step_(own[where + 1], "next")),
    h("h2", null, `${id}, step ${one.step}, candidate ${one.index}`, D.runs.length > 1 ? ` of ${called(run)}` : ""),
    h("p", null, "reward ", h("span", { class: "strong" }, number(one.reward)), " ",
      one.suites.length ? h("span", { class: "muted" }, earned(one)) : null,
      [one.book.length ? `passes ${passes(one.book)} of the Mistake Book's tests` : null, one.own.length ? `passes ${passes(one.own)} of the problem's own tests` : null,
        one.selected && one.suites.length ? "the Test LLM learned from its suites" : null].filter(Boolean).join("; "), " ",
      one.loaded === false ? h("span", { class: "badge bad" }, "does not load") : one.loaded === null ? h("span", { class: "badge warn" }, "unscored") : null, " ",
      one.wrong ? h("span", { class: "badge bad" }, "known to be wrong") : null),
    one.detail ? h("p", { class: "bad" }, one.detail) : null,
    run.questions?.[id] ? h("details", null, h("summary", null, "question"), question(run.questions[id])) : null,
    h("h3", null, "Code"), h("pre", { id: "code" }, text(one.code)),
    h("details", null, h("summary", null, "the whole reply"), h("pre", null, text(one.reply))),
    known(one.shown) ? h("details", null, h("summary", null, "the program that the Test LLM was shown in its place"), h("pre", null, text(one.shown))) : null,
    one.own.length ? [h("h3", null, "The problem's own tests"), testsTable(one.own, true)] : null,
    one.book.length ? [h("h3", null, "Tests of the Mistake Book"), testsTable(one.book, true)] : null,
    one.suites.length ? [h("h3", null, counted(one.suites.length, "suite")), one.suites.map((suite, place_) => suiteView(run, suite, place_, one))] : h("p", { class: "muted" }, "no suite was written for it"),
  ];
}
