"""The pictures of the console and of an audit's report that pages of docs/ show.

`python -m tests.console.shown_pictures` (`make pictures`) takes them. They show the night of
tests/console/bad_night.py, light, in both languages; the report speaks English only. The browser makes WebP of what
it shows. `make screenshots` takes pictures of every page, to look at.
"""

from __future__ import annotations

import base64
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Browser, Page, sync_playwright

from reconciler.audit.report.page import report_html
from tests.audit import judged_samples
from tests.console.picture_words import FOLDER, WORDS, is_in_the_catalogue
from tests.console.screenshots import LANGUAGES, Scene, Stage, scenes_of, take
from tests.console.watched_page import Look, launched

#: Name of a scene -> name of the picture.
SHOWN = {"overview": "overview", "candidates": "losses", "message": "message"}
REPORT = "audit-report"
#: Of the window, and of the picture that is made of its upper part.
WIDTH, HEIGHT, SHOWN_WIDTH = 1280, 1000, 1000
BYTES_MAX = 60 * 1024
_QUALITY = 0.54
_TEXTS = """height => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = [];
  while (walker.nextNode()) {
    const range = document.createRange();
    range.selectNodeContents(walker.currentNode);
    const box = range.getBoundingClientRect();
    if (box.width > 1 && box.top + window.scrollY < height) found.push(walker.currentNode.textContent);
  }
  return found;
}"""
_SHRINK = """([png, height, width, quality]) => new Promise(done => {
  const image = new Image();
  image.onload = () => {
    const canvas = document.createElement("canvas");
    const scale = width / image.width;
    canvas.width = width;
    canvas.height = Math.round(Math.min(image.height, height) * scale);
    const paper = canvas.getContext("2d");
    paper.imageSmoothingQuality = "high";
    paper.scale(scale, scale);
    paper.drawImage(image, 0, 0);
    done(canvas.toDataURL("image/webp", quality).split(",")[1]);
  };
  image.src = "data:image/png;base64," + png;
})"""


def texts_of(page: Page, language: str) -> list[str]:
    """Of the part that is shown, in their order."""
    found: list[str] = page.evaluate(_TEXTS, HEIGHT)
    texts = dict.fromkeys(" ".join(text.split()) for text in found)
    return [text for text in texts if is_in_the_catalogue(text, language)]


def _taken(browser: Browser, scenes: list[Scene], worlds: Path) -> Iterator[tuple[str, bytes, list[str]]]:
    looks = [Look(width=WIDTH, language=language) for language in LANGUAGES]
    texts: dict[Path, list[str]] = {}

    def read(page: Page, look: Look, file: Path) -> None:
        texts[file] = texts_of(page, look.language)

    for scene, look, file, _ in take(browser, scenes, looks, worlds, checks=False, seen=read):
        if file is not None:
            name = SHOWN[scene.name] + (".webp" if look.language == "en" else ".zh.webp")
            yield name, file.read_bytes(), texts[file]
    page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
    page.set_content(report_html(judged_samples.violations()).decode())
    yield f"{REPORT}.webp", page.screenshot(), []
    page.close()


def _as_webp(browser: Browser, png: bytes) -> bytes:
    """Its upper part."""
    page = browser.new_page()
    shrunk: str = page.evaluate(_SHRINK, [base64.b64encode(png).decode(), HEIGHT, SHOWN_WIDTH, _QUALITY])
    page.close()
    return base64.b64decode(shrunk)


def main() -> int:
    """0: all are there; 1: one is larger than pages should load."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    logging.disable()
    large = 0
    with TemporaryDirectory(prefix="reconciler-pictures-") as worlds, ExitStack() as stack:
        scenes = [scene for scene in scenes_of(Stage(Path(worlds), stack)) if scene.name in SHOWN]
        browser = launched(stack.enter_context(sync_playwright()))
        stack.callback(browser.close)
        words: dict[str, list[str]] = {}
        for name, png, texts in _taken(browser, scenes, Path(worlds)):
            words |= {name: texts} if texts else {}
            picture = _as_webp(browser, png)
            (FOLDER / name).write_bytes(picture)
            large += len(picture) > BYTES_MAX
            sys.stdout.write(f"{name}: {len(picture) / 1024:.0f} KiB\n")
    WORDS.write_text(json.dumps(words, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return int(large > 0)


if __name__ == "__main__":
    sys.exit(main())
