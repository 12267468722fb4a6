// A sentence, and over each token a tower of its steps.

const SIDES = { encoder: "What it reads", decoder: "What it writes" };
const TELLS = "What it tells";

function sentenceSection() {
  return followed((body) => {
    if (!answer()) return body.replaceChildren();
    const focused = document.activeElement?.closest?.(".token") !== null &&
      body.contains(document.activeElement);
    const parts = Object.entries(answer().stacks).map(([name, stack]) => towers(name, stack));
    if (!answer().stacks.decoder) {
      parts.push(make("div", { class: "side" }, make("h3", { text: TELLS }), answerBlock()));
    }
    body.replaceChildren(...parts, legend());
    if (focused) body.querySelector('.token[tabindex="0"][aria-pressed="true"]')?.focus();
  });
}

function towers(name, stack) {
  const words = writesOf(name);
  const side = page.model.labels && name === "decoder" ? TELLS : SIDES[name];
  const row = make(
    "div",
    {
      class: `tokens ${name}`,
      role: "group",
      "aria-label": `${side}: ${plural(words.length, "token")}, arrow keys move`,
    },
    words.map((_, place) => token(name, stack, place)),
  );
  row.addEventListener("keydown", (event) => {
    const place = moved(event, placeIn(name), words.length);
    if (place === null) return;
    change({ token: { stack: name, place } });
    document.querySelector(`.tokens.${name} .token[aria-pressed="true"]`)?.focus();
  });
  const looked = state.token.stack === name ? history(name, stack, placeIn(name)) : "";
  return make(
    "div",
    { class: "side" },
    make("h3", { text: side }),
    name === "decoder" ? answerBlock() : null,
    row,
    make("p", { class: "readout", text: looked }),
  );
}

// The place that the keyboard is at in a row; a shorter sentence has fewer.
function placeIn(name) {
  const last = readsOf(name).length - 1;
  return state.token.stack === name ? clamp(state.token.place, 0, last) : 0;
}

function token(name, stack, place) {
  const pressed = state.token.stack === name && placeIn(name) === place;
  const word = writesOf(name)[place];
  const height = `${clamp(84 / stack.steps, 4, 11)}px`;
  const cells = Array.from({ length: stack.steps }, (_, step) => cell(stack, step, place));
  return make(
    "button",
    {
      class: "token",
      type: "button",
      tabindex: placeIn(name) === place ? 0 : -1,
      "aria-pressed": String(pressed),
      "aria-label": `${spoken(word)}: ${history(name, stack, place)}`,
      onclick: () => change({ token: { stack: name, place } }),
    },
    make("span", { class: "count", text: stack.depth[place] }),
    make("span", { class: "tower", "--cell": height }, cells),
    wordSpan(word),
  );
}

function cell(stack, step, place) {
  if (stack.computed[step]?.[place] !== "1") return make("span", { class: "cell out" });
  const running = stack.halted ? 1 - stack.halted[step][place] : 1;
  const over = step >= stack.depth[place] ? " over" : "";
  return make("span", { class: `cell${over}` }, make("span", { "--running": running }));
}

// How a token halted, in words.
function history(name, stack, place) {
  const [text] = writesOf(name)[place];
  const reads = name === "decoder" ? `, having read \u2068${readsOf(name)[place][0]}\u2069` : "";
  const steps = `${stack.depth[place]} of ${plural(stack.steps, "step")}`;
  if (!stack.halted) return `${quoted(text)}${reads}: ${steps}, as every token.`;
  const halted = stack.halted
    .map((row, step) => [step, row[place]])
    .filter(([step, value]) => step > 0 && value !== null)
    .map(([step, value]) => `${percent(value, 1)} before step ${step + 1}`);
  const tail = halted.length ? `; probability of having halted: ${halted.join(", ")}` : "";
  return `${quoted(text)}${reads}: ${steps}${tail}.`;
}

// The answer, marked where it differs from that at the highest threshold, and the reference.
function answerBlock() {
  const one = answer();
  const known = sentence().answers.filter(Boolean);
  const fullest = known[known.length - 1];
  const own = one.text.split(" ");
  const same = common(own, fullest.text.split(" "));
  const words = own.flatMap((text, place) => [
    place ? " " : "",
    same.has(place) ? text : make("mark", { text, title: "not in the answer at the highest threshold" }),
  ]);
  const changed = own.length - same.size;
  const remarks = [];
  if (one.text !== fullest.text) {
    remarks.push(
      `Another answer than at threshold ${fullest.threshold}: ` +
        (changed ? `${plural(changed, "word")} differ${changed === 1 ? "s" : ""} (underlined).` : "words are missing."),
    );
  }
  const { reference } = sentence();
  if (reference !== null) {
    remarks.push(one.text === reference ? "✓ Equals the reference." : `✗ The reference: ${reference}`);
  }
  const unknown = one.words.filter(([, is]) => is).length;
  if (unknown) remarks.push(`${plural(unknown, "unknown word")}.`);
  return make(
    "div",
    {},
    make("p", { class: "answer", id: "answer" }, words),
    remarks.length ? make("p", { class: "note", text: remarks.join(" ") }) : null,
  );
}

// The places of the words of `own` that are in a longest common subsequence with `other`.
function common(own, other) {
  const lengths = Array.from({ length: own.length + 1 }, () => new Uint16Array(other.length + 1));
  for (let i = own.length - 1; i >= 0; i--) {
    for (let j = other.length - 1; j >= 0; j--) {
      lengths[i][j] =
        own[i] === other[j]
          ? lengths[i + 1][j + 1] + 1
          : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    }
  }
  const places = new Set();
  for (let i = 0, j = 0; i < own.length && j < other.length; ) {
    if (own[i] === other[j]) {
      places.add(i++);
      j++;
    } else if (lengths[i + 1][j] >= lengths[i][j + 1]) i++;
    else j++;
  }
  return places;
}

function legend() {
  const stacks = Object.values(answer().stacks);
  const sample = (name, running) =>
    make(
      "span",
      { class: `cell ${name}`, "aria-hidden": "true" },
      running === null ? null : make("span", { "--running": running }),
    );
  const items = [["encoder", 1, "one step (the lowest is the first)"]];
  if (stacks.some((stack) => stack.halted)) {
    items[0][2] += "; its width: probability that the token still runs";
    if (page.thresholds[0] !== null || Object.keys(answer().stacks).some(skips)) {
      items.push(["out", null, "skipped: the token has halted"]);
    }
  }
  const over = stacks.some((stack) =>
    stack.computed.some((row, step) =>
      [...row].some((one, place) => one === "1" && step >= stack.depth[place]),
    ),
  );
  if (over) items.push(["encoder over", 1, "computed for others: this token was read out before"]);
  const unknown = [...sentence().words, ...answer().words].some(([, is]) => is);
  return make(
    "ul",
    { class: "legend" },
    items.map(([name, running, text]) => make("li", {}, sample(name, running), text)),
    unknown ? make("li", {}, make("span", { class: "unknown", text: "word" }), "unknown to the model") : null,
  );
}
