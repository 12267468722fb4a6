// Puts the page together from what the document holds.

function facts() {
  const { checkpoint, updates, parameters, data, stacks } = page.model;
  const files = [checkpoint, data && `data: ${data}`, updates && plural(updates, "update"), `${short(parameters)} parameters`];
  const loops = Object.entries(stacks).map(
    ([name, { steps, halting, experts }]) =>
      `${name}: ${plural(steps, "step")}, ${halting}${mixtures(experts)}`,
  );
  return [files.filter(Boolean).join(" · "), make("br"), loops.join(" · ")];
}

function mixtures(experts) {
  const sizes = new Set(Object.values(experts).map(([many, chosen]) => `${chosen} of ${many} experts`));
  return sizes.size ? `, ${[...sizes].join(" and ")} for each token` : "";
}

function themeChoice() {
  const names = ["Auto", "Light", "Dark"];
  const root = document.documentElement;
  const group = choice("", names, 0, (number) => {
    if (number) root.dataset.theme = names[number].toLowerCase();
    else delete root.dataset.theme;
    paintAgain();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paintAgain);
  group.querySelector("legend").remove();
  group.setAttribute("aria-label", "Colours of the page");
  return group;
}

function sentenceChoice() {
  let known = -1;
  return followed((holder) => {
    if (page.sentences.length !== known) {
      known = page.sentences.length;
      const names = page.sentences.map((one) => (one.name ? `${one.name}: ${one.text}` : one.text));
      const chosen = (number) => change({ sentence: number, token: { stack: "encoder", place: 0 } });
      holder.replaceChildren(known > (page.live ? 0 : 1) ? choice("Sentence", names, state.sentence, chosen, { list: true }) : "");
    }
    holder.querySelectorAll("input").forEach((input, number) => (input.checked = number === state.sentence));
  });
}

function sectionOf(id, heading, lead, ...content) {
  return make(
    "section",
    { id, "aria-labelledby": `${id}-heading` },
    make("h2", { id: `${id}-heading`, text: heading }),
    lead ? make("p", { class: "lead", text: lead }) : null,
    content,
  );
}

function build() {
  const { stacks } = page.model;
  const some = page.live || page.sentences.length;
  const sections = [];
  if (some) {
    const halts = page.thresholds[0] !== null;
    const lead = halts
      ? "Each token is computed step by step, until the probability that it has halted reaches the threshold. Move the slider: a lower threshold saves work, until the answer changes."
      : "Each token is computed step by step.";
    sections.push([
      "sentence",
      "Sentence",
      sectionOf("sentence", "A sentence, step by step", lead, page.live ? typingForm() : null, sentenceChoice(), thresholdPanel(), sentenceSection()),
    ]);
    const gated = page.live?.gates || page.sentences[0]?.answers.some((one) => Object.values(one.stacks).some((stack) => stack.gates));
    sections.push(["attention", "Attention", sectionOf("attention", "Where tokens look", "A map for each step. Put the cursor on a cell, or walk with the arrow keys, to read it.", attentionSection())]);
    if (gated) {
      sections.push(["gates", "Gates", sectionOf("gates", "Copied or updated", "How far the copy gate of each token opens at each step, mean over channels: a closed gate keeps the token as it is.", gateSection())]);
    }
  }
  if (Object.values(stacks).some(({ experts }) => Object.keys(experts).length) && (some || page.experts)) {
    sections.push(["experts", "Experts", sectionOf("experts", "Who does the work", "The router sends each token to a few experts of a layer and mixes what they return.", expertSection())]);
  }
  if (page.depth) {
    sections.push(["depth", "Depth", sectionOf("depth", "How deep, by group", "", depthSection())]);
  }
  if (page.training) {
    sections.push(["training", "Training", sectionOf("training", "How it learnt", `From the log ${page.training.log}.`, trainingSection())]);
  }
  byId("title").textContent = `${page.model.name}, step by step`;
  byId("facts").append(...facts());
  byId("theme").replaceWith(make("div", { class: "theme" }, themeChoice()));
  byId("contents").append(...sections.map(([id, name]) => make("a", { href: `#${id}`, text: name })));
  byId("main").append(...sections.map(([, , element]) => element));
  byId("bottom").textContent = page.notes.join(" ");
  let width = innerWidth;
  addEventListener("resize", () => {
    // A phone hides its address bar while one scrolls, which changes the height alone.
    if (width !== innerWidth) change({});
    width = innerWidth;
  });
}

build();
