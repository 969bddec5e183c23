"""The page in a real browser: no network, nothing on the console, phone and desktop, light and dark.

Needs Debian's chromium (`make browser`). Without it these tests are skipped, except in CI, where they fail.
"""

import json
import os
from pathlib import Path

import pytest

from cli.test_exit_codes import REPLICA
from page.devtools import Browser, program
from page.documents import NAMES, at, explanation_of
from shardwright.cli.main import main
from shardwright.cli.page.page import render

PHONE, TABLET, DESKTOP = 390, 768, 1280
LOOKS = [(name, *look) for name in NAMES for look in ((PHONE, False), (DESKTOP, True))]
LOOKS += [("chat", PHONE, True), ("chat", DESKTOP, False)]
LOOKS += [(name, TABLET, False) for name in NAMES]
LOOKS += [("replay", PHONE, False), ("replay", DESKTOP, True), ("replay", DESKTOP, False)]
SERVICE = Path(__file__).parents[2] / "examples" / "chat-70b-slo.yaml"

OUTSIDE = """[...document.querySelectorAll('body *')]
  .filter((e) => !e.closest('.scroll') && !e.classList.contains('hide') && !e.closest('details:not([open])'))
  .filter((e) => { const r = e.getBoundingClientRect(); return r.width > 0 && (r.right > document.documentElement.clientWidth + 1 || r.left < -1); })
  .map((e) => e.tagName + '.' + e.getAttribute('class') + ': ' + e.textContent.slice(0, 40))"""
COLLIDING = """[...document.querySelectorAll('svg.chart')].flatMap((svg) => {
  const found = [...svg.querySelectorAll('text')].map((t) => [t.textContent, t.getBoundingClientRect()]);
  const frame = svg.getBoundingClientRect();
  const cut = found.filter(([, r]) => r.left < frame.left - 1 || r.right > frame.right + 1 || r.top < frame.top - 1);
  const pairs = found.flatMap(([a, r], i) => found.slice(i + 1)
    .filter(([, s]) => r.left < s.right - 2 && s.left < r.right - 2 && r.top < s.bottom - 3 && s.top < r.bottom - 3)
    .map(([b]) => a + ' on ' + b));
  return [...cut.map(([a]) => a + ' is cut off'), ...pairs];
})"""
FAINT = """(() => {
  const numbers = (c) => (c.match(/[\\d.]+/g) || []).map(Number);
  const light = (c) => { const [r, g, b] = numbers(c).slice(0, 3).map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ground = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; const n = numbers(c); if (n.length === 3 || n[3] > 0.99) return c; } return 'rgb(255, 255, 255)'; };
  return [...document.querySelectorAll('body *')].filter((e) => e.getClientRects().length && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
    .filter((e) => !['SCRIPT', 'OPTION'].includes(e.tagName))
    .map((e) => { const style = getComputedStyle(e); const ink = light(e.closest('svg') ? style.fill : style.color); const paper = light(ground(e));
      return [(Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05), e.textContent.slice(0, 40)]; })
    .filter(([ratio]) => ratio < 4.5).map(([ratio, text]) => ratio.toFixed(2) + ' ' + text);
})()"""
SHOWN = "[...document.querySelectorAll('[data-path]')].map((e) => [e.dataset.path, e.textContent])"
ROWS = "[...document.querySelectorAll('tr[data-arrangement]')].filter((r) => !r.hidden).map((r) => r.dataset.arrangement)"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if program() is None:
        reason = "NO BROWSER: the page is not tested. Install Debian's chromium: make browser"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    found = Browser(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Files of all pages by name."""
    folder = tmp_path_factory.mktemp("pages")
    for name in NAMES:
        (folder / f"{name}.html").write_text(render(explanation_of(name)), encoding="utf-8")
    replay_page(folder)
    return {name: (folder / f"{name}.html").as_uri() for name in (*NAMES, "replay")}


def replay_page(folder):
    """Two hours whose load doubles, under three rules."""
    arrivals, now = [], 0.0
    while now < 7200:
        now += 0.5 if now < 3600 else 0.25
        arrivals.append(f"{now},900,120\n")
    (folder / "trace.csv").write_text("arrival_s,input_tokens,output_tokens\n" + "".join(arrivals))
    (folder / "replica.json").write_text(json.dumps(REPLICA))
    files = ["--trace", str(folder / "trace.csv"), "--replica-model", str(folder / "replica.json")]
    rules = ["--policy=shardwright", "--policy=fixed:1", "--policy=hpa-in-flight"]
    targets = ["--ttft-ms=2000", "--tpot-ms=150"]
    assert main(["simulate", *files, *targets, *rules, "--html", str(folder / "replay.html")]) == 0


@pytest.mark.parametrize(("name", "width", "dark"), LOOKS)
def test_a_page_is_quiet_whole_and_legible(browser, pages, name, width, dark):
    tab = browser.open(pages[name], width=width, dark=dark)
    assert tab.requested() == [pages[name]]
    assert tab.evaluate("document.documentElement.clientWidth") == width
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.evaluate(OUTSIDE) == []
    assert tab.evaluate(COLLIDING) == []
    assert tab.evaluate(FAINT) == []
    tab.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.evaluate(OUTSIDE) == []
    assert tab.said() == []
    tab.close()


def test_what_is_not_whole_or_legible_is_seen(browser, pages):
    """The checks above can fail."""
    tab = browser.open(pages["chat"], width=PHONE)
    tab.evaluate("document.querySelector('.legend').style.minWidth = '400px'")
    tab.evaluate("document.querySelector('.lead').style.color = '#ccc'")
    tab.evaluate("document.querySelectorAll('svg.chart text').forEach((t) => t.setAttribute('x', 60))")
    tab.evaluate("console.log('hello')")
    assert any("UL.legend" in found for found in tab.evaluate(OUTSIDE))
    assert any("In this order" in found for found in tab.evaluate(FAINT))
    assert len(tab.evaluate(COLLIDING)) > 3
    assert len(tab.said()) == 1
    tab.close()


@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_the_browser_shows_the_numbers_of_the_json(browser, tmp_path, capsys, width):
    """What the command prints and what the browser shows of the page that it wrote are one document."""
    page = tmp_path / "page.html"
    assert (
        main(
            [
                "explain",
                "-f",
                str(SERVICE),
                "--gpu",
                "H100:8x4",
                "--gpu",
                "L40S:4x4",
                "-o",
                "json",
                "--html",
                str(page),
            ]
        )
        == 0
    )
    document = json.loads(capsys.readouterr().out)
    tab = browser.open(page.as_uri(), width=width)
    shown = tab.evaluate(SHOWN)
    assert len(shown) > 200
    for path, text in shown:
        wanted = at(document, path)
        assert text == wanted if isinstance(wanted, str) else float(text) == wanted, path
    assert tab.evaluate("JSON.parse(document.getElementById('explanation').textContent)") == document
    assert tab.evaluate(ROWS) == [c["arrangement"] for c in document["candidates"]]
    tab.close()


def test_candidates_are_found_and_sorted(browser, pages):
    document = explanation_of("chat")
    tab = browser.open(pages["chat"], width=DESKTOP)
    tab.evaluate("var at = (id) => document.getElementById(id);")
    tab.evaluate("(at('find').value = 'l40s tp2', at('find').dispatchEvent(new Event('input')))")
    found = tab.evaluate(ROWS)
    assert found == [c["arrangement"] for c in document["candidates"] if "L40S TP2" in c["arrangement"]]
    assert tab.evaluate("at('shown').textContent") == f"{len(found)} of {len(document['candidates'])}"
    tab.evaluate(
        "(at('find').value = '', at('reason').value = 'CostsMore', at('reason').dispatchEvent(new Event('change')))"
    )
    assert tab.evaluate(ROWS) == [
        c["arrangement"] for c in document["candidates"] if c["reason"] == "CostsMore"
    ]
    tab.evaluate("(at('reason').value = '', at('reason').dispatchEvent(new Event('change')))")
    for key, label in (("pricePerHour", "USD/h"), ("tpotMs", "TPOT, ms")):
        button = f"[...document.querySelectorAll('.candidates thead button')].find((b) => b.textContent === '{label}')"
        for down in (False, True):
            tab.evaluate(f"{button}.click()")
            known = [c for c in document["candidates"] if c[key] is not None]
            wanted = sorted((c[key] for c in known), reverse=down)
            order = {c["arrangement"]: c[key] for c in document["candidates"]}
            assert [order[a] for a in tab.evaluate(ROWS)][: len(known)] == wanted
    assert tab.said() == []
    tab.close()


def test_the_page_says_everything_without_its_script(browser, pages):
    tab = browser.open(pages["chat"], width=PHONE, script=False)
    assert tab.evaluate("getComputedStyle(document.querySelector('.filter')).display") == "none"
    assert tab.evaluate(ROWS) == [c["arrangement"] for c in explanation_of("chat")["candidates"]]
    assert tab.said() == []
    tab.close()


def test_hostile_names_run_nothing(browser, tmp_path):
    hostile = json.dumps(explanation_of("chat")).replace(
        "Llama-3.3", "</script><img src=x onerror=document.title='owned'>"
    )
    page = tmp_path / "hostile.html"
    page.write_text(render(json.loads(hostile)), encoding="utf-8")
    tab = browser.open(page.as_uri(), width=PHONE)
    assert "owned" not in tab.evaluate("document.title").replace("document.title='owned'", "")
    assert tab.evaluate("document.images.length") == 0
    assert tab.requested() == [page.as_uri()]
    assert tab.said() == []
    tab.close()


def test_a_script_that_is_not_ours_is_refused_by_the_page(browser, pages, tmp_path):
    """The page's own policy is at work: the tests above would not see it if it were not."""
    page = tmp_path / "changed.html"
    page.write_text(
        render(explanation_of("smallest")).replace(
            "</body>", "<script>document.title = 'owned'</script></body>"
        )
    )
    tab = browser.open(page.as_uri(), width=PHONE)
    assert tab.evaluate("document.title") != "owned"
    assert any("Content Security Policy" in json.dumps(entry) for entry in tab.said())
    tab.close()
