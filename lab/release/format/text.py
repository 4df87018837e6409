"""The fixed sentences of a release, used by its card, its Croissant file and its citation."""

from __future__ import annotations

from lab.release import RELEASE_VERSION

TITLE = "Attention lab measurements"
DESCRIPTION = (
    "Checks, timings, compiler estimates and grader verdicts of JAX and Pallas attention kernels, "
    "with every raw sample. Each row says its level of evidence: interpreted, compiled, estimated "
    "or measured."
)
LICENSE_ID = "cc-by-4.0"
LICENSE_SPDX = "CC-BY-4.0"
LICENSE_URL = "https://creativecommons.org/licenses/by/4.0/"
AUTHORS = "attention-lab contributors"
TABLE_PURPOSE = {
    "comparisons": "A kernel against XLA in the same case on the same system.",
    "benchmarks": "A timed case: phases apart, and the summary of its samples.",
    "correctness": "A check of a kernel against the float64 oracle.",
    "rubric": "The grader's verdict on a candidate.",
    "estimates": "A case compiled for a TPU without one, and the time expected of it.",
    "bootstrap": "What the machine was before the measurement, failed pairings included.",
    "systems": "A machine and its libraries.",
    "provenance": "Where a raw record comes from: command, code, times.",
}


def citation(published: str) -> str:
    """One line to cite the release by; `published` is an ISO date."""
    return f"{AUTHORS}. {TITLE}, version {RELEASE_VERSION}, {published[:4]}. {LICENSE_SPDX}."
