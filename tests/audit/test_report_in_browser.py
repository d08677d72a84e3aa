"""The report in a real browser: nothing is asked for, the script runs under the page's own policy, printing works."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from reconciler.audit.output.writing import write_output
from tests.audit import judged_samples
from tests.services.requirements import browser, browser_missing, require

BROWSER = browser()
pytestmark = pytest.mark.slow


class Served:
    """A folder on loopback that remembers what it was asked for."""

    def __init__(self, folder: Path) -> None:
        self.asked: list[str] = []
        asked = self.asked

        class Handler(SimpleHTTPRequestHandler):
            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the library's
                asked.append(self.path)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def stop(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    require(browser_missing())
    write_output(judged_samples.violations(), tmp_path / "violations")
    write_output(judged_samples.hostile(), tmp_path / "hostile")
    server = Served(tmp_path)
    yield server
    server.stop()


def browse(profile: Path, *arguments: str) -> str:
    assert BROWSER is not None
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    quiet = ["--disable-gpu", "--disable-background-networking", "--no-first-run", "--disable-component-update"]
    command = [BROWSER, "--headless=new", *sandbox, *quiet, f"--user-data-dir={profile}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


@pytest.mark.parametrize("name", ["violations", "hostile"])
def test_the_page_asks_for_nothing_but_itself_and_its_script_runs(served: Served, tmp_path: Path, name: str) -> None:
    shown = browse(tmp_path / "profile", "--dump-dom", f"{served.url}/{name}/report.html")
    assert served.asked == [f"/{name}/report.html"]
    assert '<p class="filter">' in shown  # the script has taken `hidden` away
    assert "<script>alert" not in shown


#: Beside the report in the same folder: shows it in a frame of a width and tells what lies outside of it.
MEASURE = """<!DOCTYPE html>
<iframe id="page" style="border:0;height:900px;width:WIDTHpx" src="NAME/report.html"></iframe>
<pre id="told">not measured</pre><script>
document.getElementById("page").addEventListener("load", (event) => {
  const seen = event.target.contentDocument, cut = [];
  for (const one of seen.querySelectorAll("body *")) {
    const box = one.getBoundingClientRect(), hidden = one.closest(".skip, .unseen");
    const isCut = box.right > WIDTH + 1 || box.left < -1 || (one.clientWidth && one.scrollWidth > one.clientWidth + 1);
    if (box.width && !hidden && isCut) cut.push(`${one.tagName}.${one.getAttribute("class")}`);
  }
  document.getElementById("told").textContent = `${cut.length} cut of ${seen.all.length}: ${cut.slice(0, 9)}`;
});
</script>"""


@pytest.mark.parametrize("name", ["violations", "hostile"])
@pytest.mark.parametrize("width", [400, 1280])
def test_nothing_is_cut(served: Served, tmp_path: Path, name: str, width: int) -> None:
    (tmp_path / "measure.html").write_text(MEASURE.replace("NAME", name).replace("WIDTH", str(width)))
    shown = browse(tmp_path / "profile", "--virtual-time-budget=20000", "--dump-dom", f"{served.url}/measure.html")
    told = shown.split('<pre id="told">')[1].split("</pre>")[0]
    assert re.fullmatch(r"0 cut of \d{3,}: ", told), told


def test_it_prints(served: Served, tmp_path: Path) -> None:
    pdf = tmp_path / "report.pdf"
    browse(tmp_path / "profile", f"--print-to-pdf={pdf}", f"{served.url}/violations/report.html")
    assert pdf.read_bytes().startswith(b"%PDF-")
