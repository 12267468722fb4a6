"""The page of `sut-report --html` in a real browser: it works, is readable, runs nothing else."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import torch

from sut_fairseq.modules.trained_words import split_words
from tests.browser import Browser, find_chromium
from tests.integration.commands import document_of, run, train, words

pytestmark = pytest.mark.browser

THRESHOLDS = [0.4, 0.6, 0.999]
INJECTED = "<img/src=x/onerror=canary=1>"
ENDING = "</script><script>canary=1</script>"


def quoted(word: str) -> str:
    """A word in a sentence of the page, isolated: it may be read from the right."""
    return f"“\u2068{word}\u2069”"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = find_chromium()
    assert program is not None
    with Browser(program) as opened:
        yield opened


@pytest.fixture(scope="module")
def page(trained: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sentences of a mixture that halts: at the thresholds after 1, 2 and all steps."""
    folder = tmp_path_factory.mktemp("page")
    log = folder / "training.log"
    line = 'x | INFO | {0} | {{"{1}nll_loss": "{2}", "{1}num_updates": "{3}"}}\n'
    log.write_text(
        "".join(line.format("train_inner", "", 5 - number, number) for number in range(1, 5))
        + "".join(line.format("valid", "valid_", 6 - number, number) for number in (2, 4))
    )
    asked = ("--sentence", "turn left twice", "--sentence", "run leftt")
    run(
        "sut-report", "--path", trained, "--data", data, *asked, "--thresholds", *THRESHOLDS,
        "--html", folder / "page.html", "--log", log, "--max-len", 9,
    )  # fmt: skip
    return folder / "page.html"


@pytest.fixture(scope="module")
def recurrent(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recurrent model, which has steps in the decoder alone."""
    folder = tmp_path_factory.mktemp("recurrent")
    sizes = words("--encoder-embed-dim 8 --encoder-hidden-size 12 --location-hidden-size 6")
    train(data, folder, "--arch", "location_mix", *sizes)
    asked = ("--sentence", "turn left twice", "--html", folder / "page.html", "--max-len", 5)
    run("sut-report", "--path", folder / "checkpoint_last.pt", "--data", data, *asked)
    return folder / "page.html"


@pytest.fixture(scope="module")
def gated(router: Path, classes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data router that tells a label and has no threshold."""
    folder = tmp_path_factory.mktemp("gated")
    options = ("--sentence", "b c a", "--steps-by", "kind", "--out", folder, "--html")
    run("sut-report", "--path", router, "--data", classes, *options)
    return folder / "report.html"


@pytest.fixture(scope="module")
def hostile(trained: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Whatever a name can be made of is markup: words, data, groups, metrics, files."""
    folder = tmp_path_factory.mktemp("hostile")
    prepared = folder / "<i>data"
    shutil.copytree(data, prepared)
    for side in ("src", "tgt"):
        dictionary = prepared / f"dict.{side}.txt"
        lines = dictionary.read_text().splitlines()
        renamed = [f"{ENDING if n % 2 else INJECTED}{n} 1" for n in range(len(lines))]
        dictionary.write_text("\n".join(renamed) + "\n")
    (prepared / "text").mkdir()
    (prepared / "text" / "test.kind").write_text("".join(f"{INJECTED}{n % 3}\n" for n in range(11)))
    # The checkpoint has other words: it is made one that says nothing of them.
    checkpoint = folder / "<b>model.pt"
    state = torch.load(trained, weights_only=True)
    state["model"], kept = split_words(state["model"])
    assert len(kept) == 2
    torch.save(state, checkpoint)
    (folder / "train.log").write_text(
        "".join(
            f'x | INFO | train_inner | {{"{INJECTED}": "{n}", "num_updates": "{n}"}}\n'
            for n in (1, 2, 3)
        )
    )
    asked = ("--sentence", f"{INJECTED} {ENDING} {INJECTED}0", "--target", f"{ENDING}1 {INJECTED}")
    run(
        "sut-report", "--path", checkpoint, "--data", prepared, *asked, "--steps-by", "kind",
        "--out", folder, "--html", "--thresholds", *THRESHOLDS,
    )  # fmt: skip
    return folder / "report.html"


def opened(browser: Browser, page: Path, **screen: Any) -> None:
    """Open the page and see that it came without errors and asked nobody for anything."""
    browser.requests.clear()
    browser.errors.clear()
    browser.open(page.as_uri(), **screen)
    asked = [url for url in browser.requests if not url.startswith("data:")]
    assert asked == [page.as_uri()] and browser.errors == []


def text(browser: Browser, selector: str) -> str:
    found: str = browser.run(f"document.querySelector({json.dumps(selector)}).textContent")
    return found


def texts(browser: Browser, selector: str) -> list[str]:
    script = f"[...document.querySelectorAll({json.dumps(selector)})].map((one) => one.textContent)"
    found: list[str] = browser.run(script)
    return found


def test_the_slider_shows_depth_cost_and_answer_of_each_threshold(
    browser: Browser, page: Path
) -> None:
    document = document_of(page)
    assert document["thresholds"] == THRESHOLDS
    opened(browser, page)
    browser.run("document.getElementById('threshold').focus()")
    browser.press("Home")
    depths = []
    for number, threshold in enumerate(THRESHOLDS):
        answer = document["sentences"][0]["answers"][number]
        assert text(browser, "#threshold-value") == f"{threshold:g}"
        assert text(browser, "#answer") == answer["text"]
        figures = dict(zip(texts(browser, ".figures dt"), texts(browser, ".figures dd b")))
        for name, stack in answer["stacks"].items():
            depth = sum(stack["depth"]) / len(stack["depth"])
            assert figures[f"{name.capitalize()} steps"] == f"{depth:.2f}"
            depths.append(depth)
            assert texts(browser, f".tokens.{name} .count") == list(map(str, stack["depth"]))
        assert figures["Skipped"] == f"{100 * answer['skipped']:.0f} %"
        assert float(figures["Cost"].split()[0]) == pytest.approx(answer["macs"] / 1e3, rel=0.01)
        spoken = browser.run("document.getElementById('threshold').ariaValueText")
        assert spoken.startswith(f"{threshold:g}: encoder ") and answer["text"] in spoken
        browser.press("ArrowRight")
    assert depths[1] < depths[3] < depths[5]  # of the decoder
    macs = [answer["macs"] for answer in document["sentences"][0]["answers"]]
    assert macs[0] < macs[1] < macs[2]


def test_sentences_and_tokens_by_keyboard(browser: Browser, page: Path) -> None:
    opened(browser, page)
    words_read = ".tokens.encoder .word"
    assert texts(browser, words_read) == ["turn", "left", "twice", "</s>"]
    browser.run("document.querySelector('.tokens.encoder .token').focus()")
    browser.press("ArrowRight", "ArrowRight")
    focused = "document.activeElement.ariaLabel"
    assert browser.run(focused).startswith(f"twice: {quoted('twice')}: ")
    assert "before step 2" in text(browser, ".side .readout")
    here = texts(browser, ".map .rows .here")
    assert here and set(here) == {"twice"}
    browser.press("End")
    assert browser.run(focused).startswith("</s>: ")
    # Along a row of tokens there is one stop for the Tab key.
    assert browser.run("document.querySelectorAll('.tokens.encoder [tabindex=\"0\"]').length") == 1

    browser.run("document.querySelector('.sentences input').focus()")
    browser.press("ArrowDown")
    assert texts(browser, words_read) == ["run", "leftt", "</s>"]
    assert texts(browser, ".tokens.encoder .unknown") == ["leftt"]
    assert "unknown to the model" in text(browser, ".legend")


def test_maps_are_read_cell_by_cell(browser: Browser, page: Path) -> None:
    """The page unpacks the bytes as Python packed them; the keys say what the map shows."""
    opened(browser, page)
    record = document_of(page)["sentences"][0]["answers"][2]["stacks"]["encoder"]
    run_steps = len(record["computed"])
    assert len(texts(browser, "#attention .map")) == run_steps == 2
    script = "document.querySelectorAll('#attention canvas')[1].focus()"
    readout = "document.querySelectorAll('#attention .map .readout')[1].textContent"

    def choose_head(head: int) -> None:
        browser.run(
            "(() => { const menu = document.querySelector('#attention select');"
            f"menu.selectedIndex = {head}; menu.dispatchEvent(new Event('change')); }})()"
        )

    def shown(row: int, column: int) -> float:
        browser.run(script)
        browser.press("Home", *["ArrowUp"] * 4, *["ArrowDown"] * row, *["ArrowRight"] * column)
        return float(browser.run(readout).rpartition(": ")[2])

    read = [word[0] for word in record["reads"]]
    heads = {}
    for head in (1, 2, 0):
        choose_head(head)
        heads[head] = [[shown(row, column) for column in range(4)] for row in range(4)]
        assert f"{quoted(read[3])} looks at {quoted(read[3])}" in browser.run(readout)
    for row in range(4):
        assert sum(heads[1][row]) == pytest.approx(1, abs=0.03)
        both = [max(one, other) for one, other in zip(heads[1][row], heads[2][row])]
        assert heads[0][row] == pytest.approx(both)


def test_experts_depth_and_training_are_there(browser: Browser, page: Path) -> None:
    opened(browser, page)
    document = document_of(page)
    layer = document["experts"]["layers"]["decoder"]["feed_forward"]
    loads = [f"{100 * one['load']:.1f} %" for one in layer]
    assert texts(browser, ".experts tbody td:nth-child(3)") == loads
    assert len(loads) == 4 and sum(one["load"] for one in layer) == pytest.approx(1, abs=0.001)
    assert texts(browser, "#contents a") == [
        "Sentence",
        "Attention",
        "Experts",
        "Depth",
        "Training",
    ]
    assert text(browser, "#depth h3") == "Average steps per token at threshold 0.999, by length"
    browser.run("document.querySelector('#training svg').focus()")
    browser.press("Home", "ArrowRight")
    assert text(browser, "#training .readout") == "Updates 2: train 3, valid 4"
    rows = texts(browser, "#training tbody tr")
    assert rows == ["14", "234", "32", "412"]


def test_a_recurrent_model(browser: Browser, recurrent: Path) -> None:
    opened(browser, recurrent)
    assert "Attention" in texts(browser, "#contents a")
    assert texts(browser, "#attention .map .columns span")[:3] == ["turn", "left", "twice"]


def test_a_model_without_thresholds(browser: Browser, gated: Path) -> None:
    document = document_of(gated)
    assert document["thresholds"] == [None] and document["model"]["labels"]
    opened(browser, gated)
    assert browser.run("document.getElementById('threshold')") is None
    assert text(browser, "#answer") in ("odd", "even")
    assert texts(browser, "#contents a") == ["Sentence", "Attention", "Gates", "Depth"]
    gates = document["sentences"][0]["answers"][0]["stacks"]["encoder"]["gates"]
    browser.run("document.querySelector('#gates canvas').focus()")
    browser.press("ArrowDown", "ArrowRight")
    assert text(browser, "#gates .readout") == (
        f"{quoted('b')} at step 2: the gate opens by {gates[1][1]:.2f}"
    )
    assert "by kind" in text(browser, "#depth h3")


def test_numbers_are_short(browser: Browser, tmp_path: Path) -> None:
    """Three digits and the unit that the rounded number has."""
    expected = {
        0: "0",
        999: "999",
        1000: "1.00 k",
        999_499: "999 k",
        999_500: "1.00 M",
        999_999: "1.00 M",
        11_912_345: "11.9 M",
        999_499_999: "999 M",
        999_500_000: "1.00 G",
        999_499_999_999: "999 G",
        999_500_000_000: "1.00 T",
        12_345_678_901_234: "12.3 T",
    }
    script = files("sut_fairseq.cli").joinpath("report_page", "dom.js").read_text()
    (tmp_path / "numbers.html").write_text(f"<script>{script}</script>")
    opened(browser, tmp_path / "numbers.html")
    assert browser.run(f"{list(expected)}.map(short)") == list(expected.values())


def test_ticks_of_an_axis_differ(browser: Browser, tmp_path: Path) -> None:
    """Also where all values are far from zero and near each other."""
    parts = files("sut_fairseq.cli").joinpath("report_page")
    script = "".join(parts.joinpath(name).read_text() for name in ("dom.js", "charts.js"))
    (tmp_path / "ticks.html").write_text(f"<script>{script}</script>")
    opened(browser, tmp_path / "ticks.html")
    for low, high, expected in (
        (5000.2, 5001.4, ["5000.5", "5001"]),
        (-0.3, 0.3, ["-0.2", "0", "0.2"]),
        (0, 0.0004, ["0", "1.0e-4", "2.0e-4", "3.0e-4", "4.0e-4"]),
        (0, 100_000, ["0", "25000", "50000", "75000", "100000"]),
    ):
        assert browser.run(f"ticksOf({low}, {high}, 4).map(markOf)") == expected


@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_markup_in_names_is_inert(browser: Browser, hostile: Path, threshold: float) -> None:
    source = hostile.read_text(encoding="utf-8")
    assert "<img" not in source and source.count("</script>") == 2
    opened(browser, hostile)
    browser.run("document.getElementById('threshold').focus()")
    browser.press("Home", *["ArrowRight"] * THRESHOLDS.index(threshold))
    # Everything is opened and pointed at once.
    browser.run("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    for selector in (".token", "canvas", "#training svg", "#depth svg"):
        browser.run(f"document.querySelectorAll('{selector}').forEach((one) => one.focus())")
    assert browser.run("typeof canary") == "undefined"
    assert (
        browser.run(
            "document.querySelectorAll('img, i:not(.scale i), b:not(dd b, .chip b)').length"
        )
        == 0
    )
    assert browser.run("document.querySelectorAll('script').length") == 2
    assert browser.errors == []
    shown = browser.run("document.body.innerText")
    assert INJECTED in shown and ENDING in shown and "<b>model.pt" in shown and "<i>data" in shown
    assert texts(browser, ".tokens.encoder .word")[:2] == [INJECTED, ENDING]
    assert INJECTED in text(browser, "#training h3")
    assert f"{INJECTED}0" in text(browser, "#depth table")


def test_the_policy_of_the_page_alone_would_stop_injected_scripts(
    browser: Browser, page: Path, tmp_path: Path
) -> None:
    """The second line of defence, with the first one broken on purpose."""
    broken = tmp_path / "broken.html"
    source = page.read_text(encoding="utf-8")
    broken.write_text(source.replace("<main", f"{INJECTED}<script>canary=1</script><main", 1))
    browser.open(broken.as_uri())
    assert browser.run("document.querySelectorAll('img').length") == 1
    assert browser.run("typeof canary") == "undefined"
    assert any("Content Security Policy" in error for error in browser.errors)


@pytest.mark.parametrize("name", ["page", "gated", "hostile"])
@pytest.mark.parametrize("width", [320, 390, 800])
def test_nothing_is_wider_than_the_screen(
    browser: Browser, name: str, width: int, request: pytest.FixtureRequest
) -> None:
    opened(browser, request.getfixturevalue(name), width=width, height=800)
    assert browser.run("document.documentElement.scrollWidth") <= width
    # The slider that stays in sight leaves room for what it changes.
    assert browser.run("document.querySelector('.panel').offsetHeight") < 280


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast_in_both_schemes(browser: Browser, page: Path, scheme: str) -> None:
    """WCAG AA: 4.5 for text, 3 for what is drawn; the buttons switch against the system."""
    opened(browser, page, scheme=scheme)
    names = ("paper", "wash", "ink", "soft", "encoder", "decoder", "focus")

    def colours() -> dict[str, float]:
        found = {
            name: browser.run(
                f"getComputedStyle(document.documentElement).getPropertyValue('--{name}')"
            )
            for name in names
        }
        return {name: luminance(value) for name, value in found.items()}

    own = colours()
    assert (own["paper"] < 0.1) == (scheme == "dark")
    for name, least in (
        ("ink", 7),
        ("soft", 4.5),
        ("encoder", 4.5),
        ("decoder", 4.5),
        ("focus", 4.5),
    ):
        assert contrast(own[name], own["paper"]) >= least
        assert contrast(own[name], own["wash"]) >= least - 0.5
    other = {"light": "Dark", "dark": "Light"}[scheme]
    browser.run(
        "[...document.querySelectorAll('.theme label')]"
        f".find((one) => one.textContent === '{other}').querySelector('input').click()"
    )
    assert (colours()["paper"] < 0.1) == (other == "Dark")
    background = browser.run("getComputedStyle(document.body).backgroundColor")
    red, green, blue = map(int, re.findall(r"\d+", background))
    assert (red + green + blue < 200) == (other == "Dark")


def luminance(colour: str) -> float:
    """WCAG's relative luminance of `#rrggbb`."""
    parts = [int(colour.strip().lstrip("#")[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return sum(weight * one for weight, one in zip((0.2126, 0.7152, 0.0722), linear))


def contrast(one: float, other: float) -> float:
    high, low = max(one, other), min(one, other)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("name", ["page", "gated"])
def test_everything_that_takes_the_focus_has_a_name(
    browser: Browser, name: str, request: pytest.FixtureRequest
) -> None:
    opened(browser, request.getfixturevalue(name))
    nameless = browser.run(
        """[...document.querySelectorAll('a, button, input, select, textarea, canvas, svg')]
        .filter((one) => !(one.ariaLabel || one.textContent.trim() || one.labels?.length
          && [...one.labels].some((label) => label.textContent.trim())))
        .map((one) => one.outerHTML.slice(0, 80))"""
    )
    assert nameless == []
    assert browser.run("document.documentElement.lang") == "en"
    levels = browser.run("[...document.querySelectorAll('h1, h2, h3')].map((one) => one.tagName)")
    assert levels.count("H1") == 1 and levels[0] == "H1"
    assert (
        browser.run(
            'document.querySelectorAll(\'[tabindex]:not([tabindex="0"], [tabindex="-1"])\').length'
        )
        == 0
    )
    # The Tab key reaches the end of the page and is nowhere caught.
    browser.run("document.body.focus()")
    seen = set()
    for _ in range(80):
        browser.press("Tab")
        seen.add(browser.run("document.activeElement.outerHTML.slice(0, 60)"))
    assert any("canvas" in one for one in seen) and any("<summary" in one for one in seen)


def test_a_page_says_what_it_could_not_find(
    trained: Path, data: Path, tmp_path: Path, browser: Browser
) -> None:
    """A model with nothing but its dictionaries beside it, as it is exported."""
    for path in (trained, data / "dict.src.txt", data / "dict.tgt.txt"):
        shutil.copy(path, tmp_path)
    finished = run(
        "sut-report", "--path", tmp_path, "--sentence", "turn left", "--html",
        *words("--thresholds 0.5"), cwd=tmp_path,
    )  # fmt: skip
    assert finished.stdout == "report.html\n"
    assert re.fullmatch(
        r"sut-report: 1 sentence at 2 thresholds, 0\.\d MB, [\d.]+ s\.", finished.stderr.strip()
    )
    opened(browser, tmp_path / "report.html")
    assert texts(browser, "#contents a") == ["Sentence", "Attention", "Experts"]
    assert "Not found, and so not shown: averages over a split and curves" in text(
        browser, "#bottom"
    )
