"""`python tests/page/screenshot.py` writes the pictures of docs/explain.md: two parts of the example's page."""

import contextlib
import io
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from page.devtools import Browser  # noqa: E402
from shardwright.cli.main import main  # noqa: E402

EXAMPLE = [
    "explain",
    "-f",
    str(ROOT / "examples/chat-70b-slo.yaml"),
    "--gpu",
    "H100:8x4",
    "--gpu",
    "L40S:4x4",
]
FOLDER = ROOT / "docs/images"
WIDTH, SCALE = 1080, 0.8
PARTS = {"explain-answer.png": (".top", ".terms"), "explain-pictures.png": ("#memory", "#load ~ .legend")}
"""Each from the top of one element to the end of another."""


def draw():
    """Write the pictures."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        with contextlib.redirect_stderr(io.StringIO()):
            main([*EXAMPLE, "--html", str(page)])
        browser = Browser(Path(folder) / "profile")
        tab = browser.open(page.as_uri(), width=WIDTH)
        FOLDER.mkdir(exist_ok=True)
        for name, (first, last) in PARTS.items():
            top = tab.evaluate(f"document.querySelector('{first}').getBoundingClientRect().top - 14")
            end = tab.evaluate(f"document.querySelector('{last}').getBoundingClientRect().bottom + 14")
            (FOLDER / name).write_bytes(
                tab.screenshot(top=max(0, top), height=end - max(0, top), scale=SCALE)
            )
        browser.close()


if __name__ == "__main__":
    draw()
