"""What counts as a path or a name, what does not, and what scrubbing leaves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.release.format import privacy


@pytest.mark.parametrize(
    "text",
    [
        "/home/ada/x.py",
        "in '/tmp/run 1/x'",
        "--dump=/var/tmp/dump",
        "-I/home/ada/include",
        "a:/opt/lib",
        r"C:\Users\ada\x.txt",
        "D:/data/x",
        r"\\server\share\x",
        "file:///etc/passwd",
        "~/notes",
        "~ada/notes",
        "ada@deep-thought",
        "ada@example.org",
        "worker-3.internal",
        "printer.local",
        "t1v-n-0a1b2c3d-w-0",
        "ip-10-0-0-12",
        "192.168.1.7",
        "Adas-MacBook-Pro",
    ],
)
def test_found(text: str) -> None:
    assert privacy.find(text)


@pytest.mark.parametrize(
    "text",
    [
        "a/b",
        "kernel_ms / baseline_ms",
        "GB/s and N/A",
        "https://example.org/home/page",
        "see http://mlcommons.org/croissant/1.1",
        "runs/2026-11-30/17-00-00",
        "libtpu 0.0.42.1",
        "<path>/dump",
        "2026-11-30T17:00:00.000+00:00",
        "lab.kernels.xla:build",
        "Intel(R) Xeon(R) CPU @ 2.00GHz",
        "raw/<profile>/<record>.json",
        "not local, not internal",
    ],
)
def test_not_found(text: str) -> None:
    assert not privacy.find(text)


def test_keys_that_name_a_machine() -> None:
    assert list(privacy.find_in({"a": [{"HostName": "x"}]}))
    assert not list(privacy.find_in({"ghost": "x", "users": 3}))


def test_scrubbing_keeps_the_file_name_and_urls() -> None:
    text = "open('/home/ada/k/mine.py') from https://example.org/home/x and -I/Users/ada/inc"
    scrubbed = privacy.scrub(text)
    assert scrubbed == "open('<path>/mine.py') from https://example.org/home/x and -I<path>/inc"


@given(st.lists(st.text("ab./~\\: -=C@\"'", max_size=30)))
def test_scrubbing_leaves_no_path_and_is_done_after_once(texts: list[str]) -> None:
    once = privacy.scrub(texts)
    assert privacy.scrub(once) == once
    left = [problem for text in once for problem in privacy.find(text)]
    assert not [problem for problem in left if problem.startswith("absolute path")]


def test_a_hostile_text_takes_no_time() -> None:
    for piece in ("a.", "a-", "-s", "/a", "\\a", "a@", " /", "~/", "C:\\"):
        privacy.find(piece * 100_000)
