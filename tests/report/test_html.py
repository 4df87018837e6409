"""report.html in a real browser: it loads from the disk, fetches nothing, and its tables sort."""

from __future__ import annotations

import html.parser
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import samples

from lab import report

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sweep = tmp_path_factory.mktemp("html") / "sweep"
    for kernel, ms in (("xla", 1.0), ("pallas", 3.0)):
        for seq in (128, 1024, 256):
            cell = samples.changed(samples.cell(f"kernel={kernel}"), seq=seq)
            made = samples.result(cell, samples.benchmark(ms * seq / 100), device=samples.TPU)
            samples.keep(made, sweep / made.cell_id)
    odd = samples.changed(samples.cell("kernel=pallas"), seq=64)
    failed = samples.result(odd, status="failed", reason="<script>alert(1)</script> & more")
    samples.keep(failed, sweep / failed.cell_id)
    built = report.build([sweep], sweep / "report")
    assert "report.html" in built.files
    return sweep / "report/report.html"


class Links(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, _: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if name in ("href", "src") and value]


def test_the_page_is_self_contained_and_links_to_its_raw_records(page: Path) -> None:
    text = page.read_text()
    links = Links()
    links.feed(text)
    files = [link for link in links.found if not link.startswith("#")]
    assert len(files) >= 7 + 2 * 3
    for link in files:
        assert not re.match(r"[a-z]+:", link)
        assert (page.parent / link).is_file(), link
    assert "measured on TPU v5 lite" in text
    assert "<script>alert(1)" not in text
    assert "default-src 'none'" in text


def test_identifiers_of_the_inline_figures_do_not_collide(page: Path) -> None:
    found = re.findall(r'\bid="([^"]+)"', page.read_text())
    assert len(found) == len(set(found))


def browse(page: Path, profile: Path, *flags: str) -> str:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed: apt-get install chromium")
    done = subprocess.run(
        [
            browser, "--headless", "--disable-gpu", "--no-sandbox", "--disable-dev-shm-usage",
            f"--user-data-dir={profile}", "--no-first-run", "--disable-background-networking",
            "--disable-component-update", "--disable-sync", "--disable-extensions",
            "--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=2000", *flags,
            page.as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return done.stdout


def column(dom: str, table: str, name: str) -> list[str]:
    body = re.search(rf'<table[^>]*id="{table}".*?</table>', dom, re.DOTALL)
    assert body
    heads = re.findall(r"<th[^>]*>(?:<button[^>]*>)?([^<]*)", body.group())
    rows = re.findall(r"<tr>(.*?)</tr>", body.group().partition("<tbody>")[2], re.DOTALL)
    return [re.findall(r"<td[^>]*>(.*?)</td>", row)[heads.index(name)] for row in rows]


def test_a_browser_shows_it_and_a_click_sorts_by_number(page: Path, tmp_path: Path) -> None:
    dom = browse(page, tmp_path / "profile", "--dump-dom")
    assert sorted(column(dom, "comparisons", "seq")) == ["1024", "128", "256"]
    click = """<script>addEventListener("load", () => {
      const heads = [...document.querySelectorAll("#comparisons th button")];
      const seq = heads.find((head) => head.textContent === "seq"); seq.click(); CLICKS });
    </script></body>"""
    for clicks, expected in (
        ("", ["128", "256", "1024"]),
        ("seq.click();", ["1024", "256", "128"]),
    ):
        driven = page.with_name("driven.html")
        driven.write_text(page.read_text().replace("</body>", click.replace("CLICKS", clicks)))
        dom = browse(driven, tmp_path / "profile", "--dump-dom")
        driven.unlink()
        assert column(dom, "comparisons", "seq") == expected
    shot = tmp_path / "page.png"
    browse(page, tmp_path / "profile", f"--screenshot={shot}", "--window-size=1400,2400")
    assert shot.read_bytes()[:4] == b"\x89PNG"
