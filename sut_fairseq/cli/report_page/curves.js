// Depth by length or group, and the curves of the training.

function depthSection() {
  const { by, groups, greatest, steps, sentences } = page.depth;
  const words = groups.map((group) => group.name);
  const numeric = words.every((word) => word.trim() !== "" && Number.isFinite(Number(word)));
  const pointsOf = (values) => values.map((value, n) => [numeric ? Number(words[n]) : n, value]);
  const chart = followed((body) => {
    const names = Object.keys(greatest);
    const others = steps.flatMap((own, number) =>
      number === state.threshold ? [] : names.map((name) => ({ name, own: name, faint: true, points: pointsOf(own[name]) })),
    );
    const now = names.map((name) => ({
      name,
      own: name,
      dashed: name === "decoder",
      points: pointsOf(steps[state.threshold][name]),
    }));
    const limits = [...new Set(Object.values(greatest))].map((most) => ({ name: `at most ${most}`, y: most }));
    const threshold = page.thresholds[state.threshold];
    const at = threshold === null ? "" : ` at threshold ${threshold}`;
    body.replaceChildren(
      lineChart({
        caption: `Average steps per token${at}, by ${by.replaceAll("_", " ")}`,
        x: { name: by.replaceAll("_", " "), words: numeric ? null : words },
        series: [...others, ...now],
        limits,
        zero: true,
      }),
    );
  });
  const faint = steps.length > 1 ? " Thin lines: the other thresholds." : "";
  const note = `${plural(sentences, "sentence")} of “${page.split.name}” on their references.${faint}`;
  return make("div", {}, chart, make("p", { class: "note", text: note }));
}

// The first metrics that are there are shown at once, the others on demand.
const FIRST = ["nll_loss", "loss", "exact_match", "accuracy", "bleu", "encoder_depth", "decoder_depth", "load_cv"];
const SHOWN = 4;

function trainingSection() {
  const { curves } = page.training;
  const rank = (metric) => (FIRST.includes(metric) ? FIRST.indexOf(metric) : FIRST.length);
  const metrics = Object.keys(curves)
    .filter((metric) => metric !== "loss" || !curves.nll_loss)
    .sort((one, other) => rank(one) - rank(other) || one.localeCompare(other));
  const charts = (some) => make("div", { class: "charts" }, some.map(trainingChart));
  const rest = make("details", {}, make("summary", { text: plural(metrics.length - SHOWN, "more curve") }));
  rest.addEventListener("toggle", () => rest.children.length < 2 && rest.append(charts(metrics.slice(SHOWN))));
  return make("div", {}, charts(metrics.slice(0, SHOWN)), metrics.length > SHOWN ? rest : null);
}

function trainingChart(metric) {
  const sets = Object.entries(page.training.curves[metric]);
  return lineChart({
    caption: metric.replaceAll("_", " "),
    x: { name: "updates", words: null },
    series: sets.map(([name, points]) => ({
      name,
      points,
      own: name === "train" ? "encoder" : "decoder",
      dashed: name !== "train",
    })),
  });
}
