"""The page shows the JSON document and nothing else: its figures, its words, escaped, the same every time."""

import json
import os
import re
import subprocess
import sys
from copy import deepcopy
from html.parser import HTMLParser
from pathlib import Path

import pytest

from page.documents import NAMES, at, explanation_of
from shardwright.cli.page import charts
from shardwright.cli.page.page import render

VOID = {"meta", "input", "line", "rect", "circle", "path", "polyline", "polygon", "br"}
REFUSED = {"too tight", "no target met", "cannot fit", "too long"}
WITHOUT_CURVES = {*REFUSED, "recorded by another version"}
STATIC = re.compile(r"P95")
"""The one figure of the template's own words: the percentile that the fields of the workload are named after."""
STRUCTURE = re.compile(
    r"^/(source/type|answer/verdict|prediction/\w+/name|questions/\d+/verdict|cost/\d+/target|memory/shares/\d+/item)$"
)
"""Words of a fixed set, by which the page decides what to show."""
HOSTILE = "</script></style></title><img src=x onerror=alert(1)>\"'><svg onload=alert(2)>{{ 7 * 7 }}{% x %}&amp;]]>\u2028"


class Page(HTMLParser):
    """What a page holds: texts by the place in the document that they claim, and everything else."""

    def __init__(self, page):
        super().__init__()
        self.claimed, self.free, self.tags, self.attributes, self.rows = [], [], [], [], []
        self.embedded, self._stack = "", []
        self.feed(page)
        assert not self._stack, self._stack

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attrs]
        if "data-arrangement" in values:
            self.rows.append(values["data-arrangement"])
        if "data-path" in values:
            self.claimed.append([values["data-path"], "", values.get("value")])
        if tag not in VOID:
            self._stack.append((tag, values))

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attrs]

    def handle_endtag(self, tag):
        assert self._stack[-1][0] == tag, (tag, self._stack)
        self._stack.pop()

    def handle_data(self, data):
        tags = [tag for tag, _ in self._stack]
        inside = [values for _, values in self._stack]
        if "style" in tags or "title" in tags or "option" in tags:
            return
        if "script" in tags:
            if inside[-1].get("id") == "explanation":
                self.embedded += data
            return
        if any("data-path" in values for values in inside):
            self.claimed[-1][1] += data
        elif not any("tick" in (values.get("class") or "").split() for values in inside):
            self.free.append(data)


def leaves(value, path=""):
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in pairs:
            yield from leaves(inner, f"{path}/{key}")
    else:
        yield path, value


def put(document, path, value):
    *parts, last = path.strip("/").split("/")
    inside = at(document, "/".join(parts)) if parts else document
    inside[int(last) if isinstance(inside, list) else last] = value


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_and_word_is_the_documents(name):
    document = explanation_of(name)
    page = Page(render(document))
    assert len(page.claimed) > 10
    for path, text, value in page.claimed:
        wanted = at(document, path)
        if isinstance(wanted, str):
            assert text == wanted, path
        else:
            assert float(text) == wanted, path
            assert value is None or json.loads(value) == wanted, path
    for text in page.free:
        assert not re.search(r"\d", STATIC.sub("", text)), text


@pytest.mark.parametrize("name", NAMES)
def test_every_candidate_question_and_line_of_the_bill_is_there_once(name):
    document = explanation_of(name)
    page = Page(render(document))
    assert page.rows == [c["arrangement"] for c in document["candidates"]]
    shown = [path for path, _, _ in page.claimed]
    once = [f"/candidates/{n}/message" for n in range(len(document["candidates"]))]
    once += [f"/questions/{n}/because" for n in range(len(document["questions"]))]
    once += [f"/notes/{n}" for n in range(len(document["notes"]))]
    once += [f"/advice/{n}/reason" for n in range(len(document["advice"]))]
    if document["proposal"]:
        once += [f"/proposal/changes/{n}" for n in range(len(document["proposal"]["changes"]))]
        once += ["/proposal/approve", "/proposal/pricePerHour"]
    if document["cheaperMix"]:
        for part in range(len(document["cheaperMix"]["parts"])):
            once += [f"/cheaperMix/parts/{part}/{key}" for key in document["cheaperMix"]["parts"][part]]
    if document["memory"]:
        once += [f"/memory/bill/{n}/gib" for n in range(len(document["memory"]["bill"]))]
    for curve in range(len(document["cost"])):
        once += [f"/cost/{curve}/points/{n}/targetMs" for n in range(len(document["cost"][curve]["points"]))]
    assert [shown.count(path) for path in once] == [1] * len(once)
    assert json.loads(page.embedded) == document


@pytest.mark.parametrize("name", NAMES)
def test_a_tick_stands_before_what_was_stated_and_is_kept_and_before_nothing_else(name):
    document = explanation_of(name)
    times = [document["prediction"][key] for key in ("ttft", "tpot")] if document["prediction"] else []
    sign = re.search(r'class="sign"[^>]*>(.)</span> ([^<]+)<', render(document))
    stated = any(time["stated"] for time in times)
    assert (sign[1] == "✓") == (document["answer"]["verdict"] == "Kept" and stated), sign[2]
    if document["answer"]["verdict"] == "NotKept" and all(time["kept"] for time in times):
        assert (sign[1], sign[2]) == ("✗", "Too few replicas")


@pytest.mark.parametrize("name", NAMES)
def test_the_page_needs_nothing_else(name):
    found = render(explanation_of(name))
    page = Page(found)
    assert not [a for a in page.attributes if a[1] in {"src", "href", "srcset", "style", "action"}]
    assert not re.search(
        r"url\(|@import|https?://",
        re.sub(r'<script type="application/json".*?</script>', "", found, flags=re.DOTALL),
    )
    assert 'content="default-src &#39;none&#39;;' in found


def test_the_same_document_gives_the_same_page():
    document = explanation_of("chat")
    again = json.loads(json.dumps(document))
    assert render(again) == render(document)
    code = "import json, sys; from shardwright.cli.page.page import render; sys.stdout.write(render(json.load(sys.stdin)))"
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(document), capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(Path(__file__).parents[2] / "operator" / "src")},
    )  # fmt: skip
    assert done.stdout == render(document)


@pytest.mark.parametrize("name", NAMES)
def test_no_text_becomes_markup(name):
    """Whatever a model, a ConfigMap, a node or a service is called."""
    plain, hostile = deepcopy(explanation_of(name)), deepcopy(explanation_of(name))
    for path, value in leaves(explanation_of(name)):
        if isinstance(value, str) and value and not STRUCTURE.search(path):
            put(plain, path, "w" * len(HOSTILE))  # as long: labels are left out by their length
            put(hostile, path, HOSTILE)
    calm, attacked = Page(render(plain)), Page(render(hostile))
    assert attacked.tags == calm.tags
    assert [a[:2] for a in attacked.attributes] == [a[:2] for a in calm.attributes]
    assert json.loads(attacked.embedded) == hostile
    assert "49" not in "".join(
        text for path, text, _ in attacked.claimed if isinstance(at(hostile, path), str)
    )


@pytest.mark.parametrize("name", [n for n in NAMES if n not in WITHOUT_CURVES])
@pytest.mark.parametrize("key", ["ttft", "tpot"])
def test_the_plan_lies_on_its_curve_and_within_the_chart(name, key):
    document = explanation_of(name)
    chart, time = charts.load_chart(document, key), document["prediction"][key]
    line = chart.lines[document["curves"]["percentiles"].index(time["percentile"])]
    points = [tuple(map(float, point.split(","))) for point in line.points.split()]
    if time["judgedMs"] is not None:
        assert (chart.planned_x, chart.planned_y) in points
    for x, y in points:
        assert charts.LEFT <= x <= charts.RIGHT
        assert charts.TOP <= y <= charts.BOTTOM
    assert (chart.planned_y > chart.below_y) == time["kept"] or abs(chart.planned_y - chart.below_y) < 1
    assert len(chart.x_ticks) > 2
    assert len(chart.y_ticks) > 2


@pytest.mark.parametrize("name", [n for n in NAMES if n not in REFUSED])
def test_the_memory_bar_is_full(name):
    bar = charts.memory_bar(explanation_of(name))
    assert abs(sum(part.width for part in bar) - 100) < 0.01
    assert all(0 < part.used <= part.width for part in bar)
