// Curves: a chart per panel, several runs over each other.
const chosen = { hidden: new Set(), smooth: false, log: false };
const WHOLE = [1, 2, 5].flatMap((one) => [0, 1, 2, 3, 4, 5, 6].map((power) => one * 10 ** power)).sort((a, b) => a - b);
const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3]];

const wordsOf = (panel, key) => panel.figures[key].replace("@n", "@" + solutions());
const figuresOf = (panel) => Object.keys(panel.figures).filter((key) => D.runs.some((run) => run.tables?.[panel.table]?.y[key]));

// Figures that no panel names, each in a panel of its own; benchmarks are among them.
function otherPanels() {
  const named = new Set(D.panels.flatMap((panel) => Object.keys(panel.figures).map((key) => panel.table + " " + key)));
  const found = new Map();
  for (const run of D.runs)
    for (const [name, own] of Object.entries(run.tables || {}))
      for (const key of Object.keys(own.y))
        if (!named.has(name + " " + key)) found.set(name + " " + key, { title: name === "steps" ? key : `${name}: ${key}`, table: name, share: false, figures: { [key]: key } });
  return [...found.values()].sort((one, other) => one.title.localeCompare(other.title));
}

function smoothed(values) {
  let kept = null;
  return values.map((value) => (known(value) ? (kept = kept === null ? value : 0.8 * kept + 0.2 * value) : value));
}

// What one panel draws: lines {name, key, arm, colour, dash, thin, x, y, low, high}; those without a name are an arm's runs.
function linesOf(panel) {
  const keys = figuresOf(panel), single = D.runs.length === 1, lines = [];
  keys.forEach((key, at) => {
    for (const arm of arms()) {
      if (chosen.hidden.has(arm)) continue;
      const runs = D.runs.filter((run) => run.arm === arm && run.tables?.[panel.table]?.y[key]);
      const own = runs.map((run) => {
        const source = run.tables[panel.table], scale = panel.share ? 100 : 1;
        const scaled = (values) => values?.map((value) => (known(value) ? scale * value : null));
        const y = scaled(source.y[key]);
        return { x: source.x, y: chosen.smooth ? smoothed(y) : y, low: scaled(source.low[key]), high: scaled(source.high[key]) };
      });
      const look = { colour: single ? colour(at) : runColour({ arm }), dash: single ? 0 : at % DASHES.length };
      const every = D.runs.filter((run) => run.arm === arm && run.tables?.[panel.table]).length;
      const some = own.length < every ? ` (${own.length} of ${every} runs)` : "", name = single ? wordsOf(panel, key) : arm + some;
      if (own.length > 1) {
        own.forEach((one) => lines.push({ ...look, ...one, thin: true, low: null, high: null }));
        lines.push({ ...look, ...meanLine(own), name, key, arm });
      } else if (own.length) lines.push({ ...look, ...own[0], name, key, arm });
    }
  });
  return lines;
}

// The mean over an arm's runs, where all of them have a value.
function meanLine(own) {
  const at = own.map((one) => new Map(one.x.map((x, place) => [x, one.y[place]])));
  const x = own[0].x.filter((step) => at.every((values) => known(values.get(step))));
  return { x, y: x.map((step) => mean(at.map((values) => values.get(step)))), low: null, high: null };
}

// Vertical lines: resumes, faults and warnings of the runs that are shown, and of few runs the checkpoints.
const shownRuns = () => D.runs.filter((run) => !chosen.hidden.has(run.arm));
const FEW = 4;
function marksOf() {
  const found = [], few = shownRuns().length <= FEW;
  for (const run of shownRuns()) {
    for (const step of few ? run.marks.checkpoints : []) found.push({ step, kind: "checkpoint" });
    for (const event of run.events || []) found.push({ step: event.step, kind: event.kind });
  }
  return found;
}

const MARKS = { checkpoint: ["--muted", [2, 4]], resumed: ["--accent", [6, 3]], warning: ["--warn", [1, 5]], fault: ["--bad", []] };

function drawMarks(plot, marks) {
  const { ctx } = plot, { top, height, left, width } = plot.bbox;
  ctx.save();
  for (const { step, kind } of marks) {
    const at = plot.valToPos(step, "x", true);
    if (at < left || at > left + width) continue;
    const [ink_, dash] = MARKS[kind];
    ctx.strokeStyle = ink(ink_);
    ctx.setLineDash(dash.map((length) => length * devicePixelRatio));
    ctx.lineWidth = devicePixelRatio;
    ctx.beginPath();
    ctx.moveTo(at, kind === "fault" ? top : top + height * (kind === "checkpoint" ? 0.9 : 0));
    ctx.lineTo(at, top + height);
    ctx.stroke();
  }
  ctx.restore();
}

// From where to where an axis goes: a share stays within 0 and 100 %, a level line has room on both sides.
function rangeOf(low, high, share) {
  if (!known(low)) return [0, 1];
  if (share && low === high) return [0, 100];
  const [from, to] = low === high && low === 0 ? [0, 1] : uPlot.rangeNum(low, high, 0.1, true);
  return share ? [Math.max(0, from), Math.min(100, to)] : [from, to];
}

function chart(panel) {
  const lines = linesOf(panel);
  const legend = h("div", { class: "legend" }), target = h("div", { class: "plot" });
  const card = h("section", { class: "card" }, h("h3", null, panel.title, panel.share ? " (%)" : ""), legend, target);
  if (!lines.length) {
    target.append(h("p", { class: "muted" }, "nothing to draw"));
    return card;
  }
  const data = [], series = [{}], bands = [], shown = [];
  for (const line of lines) {
    const fade = (alpha) => line.colour + alpha;
    const points = line.x.length < 30 && !line.thin;
    const main = { stroke: line.thin ? fade("55") : line.colour, width: line.thin ? 1 : 2, dash: DASHES[line.dash], spanGaps: true, points: { show: points, size: 5 } };
    data.push([line.x, line.y]);
    series.push(main);
    if (line.name) shown.push([series.length - 1, line]);
    if (line.low && line.high) {
      data.push([line.x, line.high], [line.x, line.low]);
      const edge = { stroke: "transparent", width: 0, points: { show: false }, spanGaps: true };
      series.push({ ...edge }, { ...edge });
      bands.push({ series: [series.length - 2, series.length - 1], fill: fade("26") });
    }
  }
  const joined = uPlot.join(data), marks = panel.table === "steps" ? marksOf() : [];
  const swatchOf = (line, colour_) => {
    const swatch = h("span", { class: `swatch ${["", "dashed", "dotted", "dashdotted"][line.dash]}` });
    swatch.style.color = colour_;
    return swatch;
  };
  // Several figures of several runs: a row per figure, told by its stroke, with a value in the colour of each run.
  const rows = new Map();
  const grouped = D.runs.length > 1 && new Set(shown.map(([, line]) => line.key)).size > 1;
  const labels = shown.map(([place_, line]) => {
    const value = h("span", { class: "strong", title: line.name });
    if (!grouped) legend.append(h("span", null, swatchOf(line, line.colour), line.name, " ", value));
    else {
      if (!rows.has(line.key)) {
        rows.set(line.key, h("span", { class: "values" }));
        legend.append(h("div", { class: "figure" }, swatchOf(line, ink("--muted")), wordsOf(panel, line.key), rows.get(line.key)));
      }
      value.style.color = line.colour;
      rows.get(line.key).append(value);
    }
    return [place_, value];
  });
  const axis = { stroke: ink("--muted"), grid: { stroke: ink("--line"), width: 1 }, ticks: { stroke: ink("--line") }, font: "12px system-ui" };
  const told = (plot) => {
    const at = plot.cursor.idx;
    for (const [place_, value] of labels) {
      const values = plot.data[place_];
      let from = known(at) ? at : values.length - 1;
      while (from > 0 && !known(values[from])) from -= 1;
      value.textContent = known(values[from]) ? number(values[from], 4) : "";
    }
  };
  const logarithmic = chosen.log && joined.slice(1).flat().every((value) => !known(value) || value > 0);
  const options = {
    width: 400, height: 210, series, bands,
    legend: { show: false },
    cursor: { sync: { key: panel.table }, focus: { prox: 30 } },
    scales: { x: { time: false }, y: logarithmic ? { distr: 3 } : { range: (_, low, high) => rangeOf(low, high, panel.share) } },
    axes: [{ ...axis, size: 34, space: 45, incrs: WHOLE }, { ...axis, size: 56, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : number(tick, 4))) }],
    hooks: { setCursor: [told], ready: [told], draw: [(plot) => drawMarks(plot, marks)] },
  };
  const plot = new uPlot(options, joined, target);
  new ResizeObserver(() => {
    if (target.isConnected && target.clientWidth) plot.setSize({ width: target.clientWidth, height: 210 });
  }).observe(target);
  return card;
}

function runBoxes(redraw) {
  if (arms().length < 2) return null;
  return arms().map((arm) => {
    const label = box(arm, !chosen.hidden.has(arm), (on) => { on ? chosen.hidden.delete(arm) : chosen.hidden.add(arm); redraw(); });
    label.style.color = runColour({ arm });
    return label;
  });
}

function curvesView() {
  const charts = h("div", { class: "grid" }), more = h("div", { class: "grid" });
  const others = otherPanels();
  let filter = "";
  const fold = h("details", { toggle: () => drawMore() }, h("summary", null, `${counted(others.length, "other figure")} of metrics.jsonl`),
    search("filter the figures", "", (value) => { filter = value.toLowerCase(); drawMore(); }), more);
  const drawMore = () => more.replaceChildren(...(fold.open ? others.filter((panel) => panel.title.toLowerCase().includes(filter)).slice(0, 24).map(chart) : []));
  const draw = () => {
    charts.replaceChildren(...D.panels.filter((panel) => figuresOf(panel).length).map(chart));
    drawMore();
  };
  draw();
  const buckets = Math.max(...D.runs.flatMap((run) => Object.values(run.tables || {}).map((own) => own.bucket)), 1);
  return [
    h("div", { class: "bar sticky" }, runBoxes(draw), box("smooth", chosen.smooth, (on) => { chosen.smooth = on; draw(); }),
      box("logarithmic", chosen.log, (on) => { chosen.log = on; draw(); })),
    h("p", { class: "muted" }, "Drag to zoom, double-click to see all. ", D.runs.length > arms().length ? "Thin lines are runs, thick ones their mean. " : "", `Bands of held-out figures${D.runs.length > arms().length ? ", of a run alone," : ""} are 95 % intervals over problems`,
      buckets > 1 ? `; a point stands for up to ${buckets} steps, its band is from their smallest to their largest value. ` : ". ",
      `Upright lines: ${D.runs.length > FEW ? `checkpoints (short, of up to ${FEW} runs)` : "checkpoints (short)"}, resumes (dashed), warnings (dotted), the fault that ended a run.`),
    charts, others.length ? fold : null,
  ];
}
