// Curves, drawn at the size they have on the screen, with a cursor and the numbers as a table.

const MARGIN = { left: 46, right: 14, top: 12, bottom: 34 };
const HEIGHT = 230;

// A chart.
//   caption: above it
//   x: { name, words }: what the horizontal axis is; words: names of places 0, 1, ..., else numbers
//   series: [{ name, points: [[x, y]], own (class of the colour), dashed, faint, dots }]
//   limits: [{ name, y }]: horizontal lines
//   zero: whether it always starts there
function lineChart({ caption, x, series, limits = [], zero = false }) {
  const shown = named(series);
  const places = [...new Set(shown.flatMap((one) => one.points.map(([place]) => place)))].sort((a, b) => a - b);
  const svg = draw("svg", { tabindex: 0, role: "img", "aria-label": `${caption}. ${ends(shown)}` });
  const readout = make("p", { class: "readout", text: ends(shown) });
  let at = null;
  const paint = () => {
    const width = svg.parentElement?.clientWidth || 500;
    paintChart(svg, { width, x, series, limits, zero, at });
  };
  const move = (number) => {
    at = places[number];
    const values = shown
      .map((one) => [one.name, one.points.find(([place]) => place === at)?.[1]])
      .filter(([, value]) => value !== undefined);
    const where = x.words ? x.words[at] : at.toLocaleString("en");
    readout.textContent = `${title(x.name)} ${where}: ${values.map(([name, value]) => `${name} ${figureOf(value)}`).join(", ")}`;
    paint();
  };
  svg.addEventListener("keydown", (event) => {
    const number = moved(event, places.indexOf(at), places.length);
    if (number === null) return;
    move(number);
    announce(readout.textContent);
  });
  svg.addEventListener("mousemove", (event) => {
    const box = svg.getBoundingClientRect();
    const share = (event.clientX - box.left - MARGIN.left) / (box.width - MARGIN.left - MARGIN.right);
    const [first, last] = [places[0], places[places.length - 1]];
    const wanted = first + share * (last - first);
    let best = 0;
    places.forEach((place, number) => {
      if (Math.abs(place - wanted) < Math.abs(places[best] - wanted)) best = number;
    });
    move(best);
  });
  new ResizeObserver(paint).observe(svg);
  return make(
    "figure",
    { class: "chart" },
    make("h3", { text: caption }),
    svg,
    readout,
    numbersOf(x, shown, places),
  );
}

// From where to where each curve goes.
function ends(series) {
  return series
    .filter((one) => one.points.length)
    .map((one) => `${one.name}: from ${figureOf(one.points[0][1])} to ${figureOf(one.points[one.points.length - 1][1])}`)
    .join("; ");
}

function figureOf(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 100 ? value.toFixed(0) : size >= 0.01 ? String(Number(value.toPrecision(3))) : value.toExponential(1);
}

// Ticks are round numbers: rounded again, neighbours far from zero would read the same.
function markOf(tick) {
  return Math.abs(tick) < 0.01 ? figureOf(tick) : String(tick);
}

function paintChart(svg, { width, x, series, limits, zero, at }) {
  const all = series.flatMap((one) => one.points);
  const xs = all.map(([place]) => place);
  const ys = [...all.map(([, value]) => value), ...limits.map((one) => one.y)];
  const [left, right] = [Math.min(...xs), Math.max(...xs)];
  // From zero, unless there is something below it or everything is far above.
  const least = Math.min(...ys);
  zero ||= least >= 0 && least < 0.5 * Math.max(...ys);
  let [low, high] = [zero ? 0 : least, Math.max(...ys)];
  if (low === high) high = low + 1;
  high += 0.04 * (high - low);
  const toX = (place) =>
    MARGIN.left + ((place - left) / (right - left || 1)) * (width - MARGIN.left - MARGIN.right);
  const toY = (value) => HEIGHT - MARGIN.bottom - ((value - low) / (high - low)) * (HEIGHT - MARGIN.top - MARGIN.bottom);
  const parts = [];
  for (const tick of ticksOf(low, high, 4)) {
    parts.push(draw("line", { class: "axis", x1: MARGIN.left, x2: width - MARGIN.right, y1: toY(tick), y2: toY(tick) }));
    parts.push(draw("text", { x: MARGIN.left - 8, y: toY(tick) + 4, "text-anchor": "end", text: markOf(tick) }));
  }
  for (const [place, text] of placesOf(x, left, right, width)) {
    parts.push(draw("text", { x: toX(place), y: HEIGHT - MARGIN.bottom + 16, "text-anchor": "middle", text }));
  }
  parts.push(draw("text", { x: width - MARGIN.right, y: HEIGHT - 2, "text-anchor": "end", text: x.name }));
  for (const { name, y } of limits) {
    parts.push(draw("line", { class: "limit", x1: MARGIN.left, x2: width - MARGIN.right, y1: toY(y), y2: toY(y) }));
    parts.push(draw("text", { x: MARGIN.left + 4, y: toY(y) - 5, text: name }));
  }
  for (const one of series) parts.push(curve(one, toX, toY));
  parts.push(...namesOf(named(series), toX, toY));
  if (at !== null) {
    parts.push(draw("line", { class: "cursor", x1: toX(at), x2: toX(at), y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom }));
  }
  svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  svg.setAttribute("height", HEIGHT);
  svg.replaceChildren(...parts);
}

// A line, and its points where there are few.
function curve({ points, own = "", dashed, faint }, toX, toY) {
  const classes = ["curve", faint && "faint", dashed && "dashed"].filter(Boolean).join(" ");
  const places = points.map(([place, value]) => [toX(place), toY(value)]);
  const parts = [draw("polyline", { class: classes, points: places.map((pair) => pair.map((one) => one.toFixed(1)).join(",")).join(" ") })];
  if (!faint && points.length <= 40) {
    for (const [cx, cy] of places) {
      parts.push(
        dashed
          ? draw("rect", { class: "dot", x: cx - 3.5, y: cy - 3.5, width: 7, height: 7 })
          : draw("circle", { class: "dot", cx, cy, r: 3.8 }),
      );
    }
  }
  return draw("g", { class: own }, parts);
}

// The names of the curves at their ends, one above the other where they would meet.
function namesOf(series, toX, toY) {
  const ends = series
    .filter((one) => one.points.length)
    .map(({ name, points }) => [name, ...points[points.length - 1]])
    .map(([name, place, value]) => ({ name, x: toX(place), y: toY(value) - 9 }))
    .sort((one, other) => other.y - one.y);
  ends.forEach((one, number) => {
    if (number) one.y = Math.min(one.y, ends[number - 1].y - 15);
  });
  return ends.map(({ name, x, y }) =>
    draw("text", { class: "name", x, y, "text-anchor": "end", text: name }),
  );
}

// The curves that are more than background.
function named(series) {
  return series.filter((one) => !one.faint);
}

function ticksOf(low, high, wanted) {
  if (low === high) return [low];
  const rough = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].find((one) => one * power >= rough) * power;
  const ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high; tick += step) ticks.push(Number(tick.toPrecision(10)));
  return ticks;
}

function placesOf(x, left, right, width) {
  if (!x.words) return ticksOf(left, right, clamp(Math.floor(width / 90), 2, 8)).map((one) => [one, one.toLocaleString("en")]);
  const longest = Math.max(...x.words.map((word) => word.length));
  const room = Math.max(1, Math.floor((width - 60) / (8 * Math.min(longest, 12) + 8)));
  const every = Math.ceil(x.words.length / room);
  return x.words.map((word, place) => [place, cut(word)]).filter(([place]) => place % every === 0);
}

function numbersOf(x, series, places) {
  const rows = places.map((place) =>
    make(
      "tr",
      {},
      make("th", { scope: "row", text: x.words ? x.words[place] : place.toLocaleString("en") }),
      series.map((one) => {
        const value = one.points.find(([own]) => own === place)?.[1];
        return make("td", { class: "number", text: value === undefined ? "" : figureOf(value) });
      }),
    ),
  );
  const head = [x.name, ...series.map((one) => one.name)];
  return make(
    "details",
    {},
    make("summary", { text: "Numbers" }),
    make(
      "div",
      { class: "scroll", tabindex: 0 },
      make(
        "table",
        {},
        make("thead", {}, make("tr", {}, head.map((text) => make("th", { scope: "col", text })))),
        make("tbody", {}, rows),
      ),
    ),
  );
}
