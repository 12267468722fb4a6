// The threshold: what each costs as bars, a slider, and the figures of the chosen one.

function thresholdPanel() {
  const names = page.thresholds.map(String);
  const count = names.length;
  const figures = make("dl", { class: "figures" });
  const update = () => figures.replaceChildren(...(answer() ? figuresOf(answer()) : []));
  if (page.thresholds[0] === null) {
    follow(update);
    update();
    return make("div", { class: "panel" }, figures);
  }
  const output = make("output", { id: "threshold-value" });
  const input = make("input", {
    class: "slider",
    id: "threshold",
    type: "range",
    min: 0,
    max: count - 1,
    step: 1,
    "aria-describedby": "threshold-help",
    oninput: () => change({ threshold: Number(input.value) }),
  });
  const bars = make("div", { class: "bars", "aria-hidden": "true" });
  const ticks = names.map((text) => make("span", { text }));
  const show = () => {
    input.value = state.threshold;
    output.textContent = names[state.threshold];
    bars.replaceChildren(...barsOf(count));
    ticks.forEach((tick, number) => tick.classList.toggle("now", number === state.threshold));
    input.setAttribute("aria-valuetext", `${names[state.threshold]}: ${inWords()}`);
    update();
  };
  follow(show);
  show();
  const label = make("label", { for: "threshold", text: "Halting threshold " });
  const help = page.live
    ? "Each bar: the cost at that threshold, once it has been asked; ≠: another answer"
    : "Each bar: the cost at that threshold; ≠: the answer differs from that at the highest";
  return make(
    "div",
    { class: "panel", "--n": count },
    make(
      "div",
      { class: "head" },
      make("span", {}, label, output),
      make("span", { id: "threshold-help", text: help }),
    ),
    bars,
    input,
    make("div", { class: "ticks", "aria-hidden": "true" }, ticks),
    figures,
  );
}

function barsOf(count) {
  const known = (sentence()?.answers ?? []).filter(Boolean);
  // Where nobody can count MACs, the share that is not skipped stands for the cost.
  const cost = (one) => one.macs ?? 1 - one.skipped;
  const most = Math.max(...known.map(cost));
  return Array.from({ length: count }, (_, number) => {
    const one = answer(number);
    const share = one ? cost(one) / most : 0;
    const differs = one && answer(count - 1) && one.text !== answer(count - 1).text;
    const height = `${Math.round(72 * share)}%`;
    const bar = make("span", {});
    bar.style.height = one ? height : "0";
    const classes = [number === state.threshold && "now", differs && "differs"];
    return make(
      "span",
      {
        class: classes.filter(Boolean).join(" "),
        "--h": height,
        onclick: () => change({ threshold: number }),
      },
      bar,
    );
  });
}

function figuresOf(one) {
  const figures = Object.entries(one.stacks).map(([name, stack]) => {
    const depth = mean(stack.depth);
    return figure(`${title(name)} steps`, decimal(depth), `of ${stack.steps}`, depth / stack.steps);
  });
  const all = Object.values(one.stacks).every((stack) => stack.halted);
  const whose = all ? "of all steps" : "where tokens halt";
  figures.push(figure("Skipped", percent(one.skipped), whose, one.skipped, "aside"));
  if (one.macs !== null) {
    const most = Math.max(...sentence().answers.filter(Boolean).map((other) => other.macs));
    const less = 1 - one.macs / most;
    const remark = less >= 0.005 ? `MACs, ${percent(less)} less` : "MACs";
    figures.push(figure("Cost", short(one.macs), remark, one.macs / most, "aside"));
  }
  return figures;
}

// A number with what it is of; `kind` "aside" is a remark that a small screen leaves out.
function figure(label, number, remark, share, kind = null) {
  return make(
    "div",
    {},
    make("dt", { text: label }),
    make("dd", {}, make("b", { text: number }), " ", make("small", { class: kind, text: remark })),
    make("dd", { class: "meter", "--share": clamp(share, 0, 1) }, make("span")),
  );
}

// The figures for a screen reader, as the slider moves.
function inWords() {
  const one = answer();
  if (!one) return "not asked yet";
  const depths = Object.entries(one.stacks).map(
    ([name, stack]) => `${name} ${decimal(mean(stack.depth), 1)} of ${stack.steps} steps`,
  );
  const cost = one.macs === null ? "" : `, ${short(one.macs)} MACs`;
  return `${depths.join(", ")}, ${percent(one.skipped)} skipped${cost}; answer: ${one.text}`;
}
