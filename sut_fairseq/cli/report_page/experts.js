// Which token is mixed from which experts, how the work is shared, and who goes where.

function expertSection() {
  const layers = Object.entries(page.model.stacks).flatMap(([stack, { experts }]) =>
    Object.keys(experts).map((layer) => [stack, layer]),
  );
  const chosen = { layer: layers.length - 1, step: 0 };
  const show = (body) => {
    const [stack, layer] = layers[chosen.layer];
    const controls = [
      menu("Layer", layers.map(([one, other]) => `${one} ${LAYERS[other]}`), chosen.layer, (number) => {
        chosen.layer = number;
        again(body, show, "select");
      }),
    ];
    const parts = [];
    if (answer()) {
      const run = answer().stacks[stack].computed.length;
      chosen.step = clamp(chosen.step, 0, run);
      const steps = ["all", ...Array.from({ length: run }, (_, step) => String(step + 1))];
      controls.push(
        choice("Step", steps, chosen.step, (number) => {
          chosen.step = number;
          again(body, show, "input:checked");
        }),
      );
      parts.push(
        mixture(stack, layer, chosen.step),
        scale("0", "100 % of the mixture", skips(stack) ? "skipped: the token has halted" : null),
      );
    }
    body.replaceChildren(
      make("div", { class: "choices" }, controls),
      make("div", { class: "beside" }, make("div", {}, parts), expertTable(stack, layer)),
    );
  };
  return followed(show);
}

// Mixing weights: rows are tokens, columns experts; of all steps the mean.
function mixture(stack, layer, step) {
  const [experts] = page.model.stacks[stack].experts[layer];
  const { indices, weights } = answer().stacks[stack].experts[layer];
  const words = writesOf(stack);
  const steps = step ? [step - 1] : indices.map((_, number) => number);
  const rows = words.map((_, place) => {
    const sums = new Array(experts).fill(0);
    let taken = 0;
    for (const each of steps) {
      if (!indices[each][place]) continue;
      taken++;
      indices[each][place].forEach((expert, n) => (sums[expert] += weights[each][place][n]));
    }
    return taken ? sums.map((sum) => sum / taken) : null;
  });
  const when = step ? `at step ${step}` : "averaged over the steps";
  return mapFigure({
    caption: `Mixing weights in per cent, ${when}: rows are tokens, columns experts`,
    label: `Mixing weights, ${when}`,
    rows: words,
    columns: Array.from({ length: experts }, (_, expert) => [String(expert + 1)]),
    value: (row, expert) => rows[row]?.[expert] ?? null,
    say: (row, expert, own) =>
      own === null
        ? `${quoted(words[row][0])} has halted.`
        : `${quoted(words[row][0])}: ${percent(own)} from expert ${expert + 1}`,
    here: state.token.stack === stack ? placeIn(stack) : null,
    numbers: true,
    upright: true,
  });
}

function expertTable(stack, layer) {
  const [experts] = page.model.stacks[stack].experts[layer];
  const here = answer() ? loadOf(stack, layer, experts) : null;
  const there = page.experts?.layers[stack][layer];
  if (!here && !there) return "";
  const most = Math.max(...(here ?? [0]), ...(there ?? []).map((one) => one.load));
  const second = here ? "second" : null; // of two loads, the one that a phone has no room for
  const bar = (share, kind) =>
    make(
      "td",
      { class: ["load", kind].filter(Boolean).join(" ") },
      percent(share, 1),
      make("span", { class: "meter", "--share": share / most }, make("span")),
    );
  const head = [
    ["Expert"],
    here && ["Load here"],
    there && ["Load in the split", second],
    there && ["Words that give it the largest share of their weight"],
  ];
  const body = Array.from({ length: experts }, (_, expert) =>
    make(
      "tr",
      {},
      make("th", { scope: "row", text: expert + 1 }),
      here ? bar(here[expert]) : null,
      there ? bar(there[expert].load, second) : null,
      there ? make("td", {}, there[expert].words.flatMap(wordChip)) : null,
    ),
  );
  const even = `An even load is ${percent(1 / experts, 1)} of all choices for each of the ${experts}.`;
  const split = there
    ? ` The split: ${plural(page.experts.sentences, "sentence")} of ${quoted(page.split.name)} at threshold ${page.thresholds[page.chosen] ?? "–"}; words seen three times or more. In the decoder, a word is the last one read.`
    : "";
  return make(
    "div",
    {},
    make(
      "div",
      { class: "scroll tall" },
      make(
        "table",
        { class: "experts" },
        make("thead", {}, make("tr", {}, head.filter(Boolean).map(([text, kind]) => make("th", { scope: "col", class: kind, text })))),
        make("tbody", {}, body),
      ),
    ),
    make("p", { class: "note", text: even + split }),
  );
}

function wordChip([text, share, seen]) {
  const what = `${percent(share)} of the weight of ${text}, seen ${plural(seen, "time")}`;
  return [
    make("span", { class: "chip", title: what }, make("b", { text }), " ", make("small", { text: percent(share) })),
    " ",
  ];
}
