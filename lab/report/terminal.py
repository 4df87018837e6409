"""What a person reads on the terminal when a run or a sweep has ended."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lab.cells import expectations
from lab.records import (
    AuditSection,
    CampaignSection,
    CompareSection,
    CompileSection,
    CorrectnessSection,
    DoctorSection,
    Result,
    RubricSection,
    VerifySection,
)
from lab.records.benchmark import BenchmarkSection
from lab.report import Report, slowdowns
from lab.report.comparisons import CLAIMS, compare

PROBLEMS_SHOWN = 8  # per check; the record holds more


def show(result: Result, directory: Path, console: Console | None = None) -> None:
    """The outcome of one cell: its status, where it lies, its section, and what surprised."""
    console = console or Console()
    where = escape(shorter(directory))
    console.print(
        f"[bold]{result.cell_id}[/]: {result.status}  [dim]{where}[/]",
        highlight=False,
        soft_wrap=True,
    )
    if result.status != "done":
        console.print(f"  {result.reason}", highlight=False, markup=False, soft_wrap=True)
        if result.error and result.error.file:
            console.print(f"  full text: {result.error.file} in the run directory", markup=False)
        return
    section = getattr(result, result.task)
    _SHOW.get(result.task, _show_plain)(section, result, console)
    for reason in expectations.surprises(result):
        text = f"[bold red]exit code 1[/]: {escape(reason)}"
        console.print(text, highlight=False, soft_wrap=True)


def show_sweep(
    results: Sequence[Result],
    directory: Path,
    report: Report | None,
    console: Console | None = None,
) -> None:
    """The summary of a sweep: counts, every cell that went wrong, slowdowns, where tables lie."""
    console = console or Console()
    counts = Counter(result.status for result in results)
    text = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    line = partial(console.print, highlight=False, soft_wrap=True)
    noun = "cell" if len(results) == 1 else "cells"
    line(f"[bold]{len(results)} {noun}[/]" + (f": {text}" if text else ""))
    for result in results:
        for reason in expectations.surprises(result):
            line(f"  [red]{result.cell_id}[/]: {escape(reason)}")
            line(f"    in {escape(shorter(directory / result.cell_id))}")
        if result.status == "unsupported":
            line(f"  [yellow]{result.cell_id}[/]: unsupported: {escape(str(result.reason))}")
    if report is None:
        return
    for problem in report.skipped:
        line(f"  passed over: {escape(problem)}")
    if found := list(compare(results)):
        console.print(slowdowns.table(found))
    for name in ("report.md", "slowdown.png"):
        if name in report.files:
            line(f"{name}: {escape(shorter(report.directory / name))}")


def shorter(path: Path) -> str:
    """A path as people type it: relative to where they are, if it lies below."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _show_plain(section: Any, _: Result, console: Console) -> None:  # noqa: ANN401 - any section
    data = section if isinstance(section, dict) else section.model_dump(mode="json")
    for key, value in data.items():
        console.print(f"  {key}: {value}", highlight=False, markup=False, soft_wrap=True)


def _show_benchmark(section: BenchmarkSection, result: Result, console: Console) -> None:
    claim = CLAIMS.get(result.evidence) if result.evidence else None
    mark = f"  [yellow]({claim})[/]" if claim else ""
    console.print(
        f"  median {section.median_ms:.4g} ms over {len(section.samples_ms)} samples on "
        f"{result.environment.device_kind}, {result.evidence}{mark}",
        highlight=False,
    )
    console.print(
        f"  transfer {section.transfer_ms:.3g} ms, lower {section.lower_ms:.3g} ms, "
        f"compile {section.compile_ms:.3g} ms, first call {section.first_call_ms:.3g} ms",
        highlight=False,
    )
    for text in _benchmark_details(section):
        console.print(f"  {text}", highlight=False, soft_wrap=True)
    gate = section.gate
    error = "not finite" if gate.error is None else f"{gate.error:.3g}"
    text = f"  gate: error {error} of {gate.bound:g} ({escape(gate.measure)})"
    console.print(text, highlight=False, soft_wrap=True)


def _benchmark_details(section: BenchmarkSection) -> list[str]:
    """Dispatch floor, device time, comparison and flags, a line each, where there are any."""
    lines = []
    if section.dispatch_floor_ms is not None:
        share = section.dispatch_floor_ms / section.median_ms
        lines.append(
            f"dispatch floor {section.dispatch_floor_ms:.3g} ms, {share:.0%} of the median"
        )
    if section.device:
        device = section.device
        lines.append(f"device {device.median_ms:.4g} ms a call ({device.inner_calls} chained)")
    elif section.no_device_time:
        lines.append(f"no device time: {escape(section.no_device_time)}")
    if section.profiler:
        lines.append(f"profiler {section.profiler.call_ms:.4g} ms a call")
    for name, found in (("itself", section.control), ("the baseline", section.paired)):
        if found is None:
            continue
        where = name if section.paired is not found else section.paired.baseline["name"]
        interval = "too few pairs for an interval"
        if found.ratio_lo is not None:
            interval = f"{found.ratio_lo:.3f} to {found.ratio_hi:.3f}"
        lines.append(
            f"against {where}: {found.verdict}, ratio {found.ratio:.3f} ({interval}), "
            f"margin {found.margin:.3f}, {found.pairs} pairs"
        )
    if section.flags:
        lines.append(f"[yellow]mind: {', '.join(section.flags)}[/]")
    return lines


def _show_compared(section: CompareSection, _: Result, console: Console) -> None:
    from lab.report import compared

    table = Table("case", "", "before ms", "after ms", "after / before", "note")
    styles = {"slower": "red", "faster": "green", "missing": "yellow"}
    for one in section.cells:
        mark = "REGRESSION" if one.regression else one.verdict
        table.add_row(
            escape(one.case),
            f"[{styles.get(one.verdict, 'default')}]{mark}[/]",
            compared.ms(one.before_ms),
            compared.ms(one.after_ms),
            compared.ratio(one),
            escape("; ".join(filter(None, [" ".join(one.differs), one.note]))),
        )
    console.print(table)
    console.print(
        f"  {compared.counts(section.cells)}; compare.csv and compare.md in the run's directory"
    )


def _show_correctness(section: CorrectnessSection, result: Result, console: Console) -> None:
    table = Table("check", "", "error", "bound", "margin")
    for check in section.checks:
        table.add_row(
            check.name,
            "[green]pass[/]" if check.passed else "[bold red]FAIL[/]",
            "not finite" if check.error is None else f"{check.error:.3g}",
            f"{check.bound:.3g}",
            "" if check.margin is None else f"{check.margin:.1f}x",
        )
    console.print(table)
    if result.cell.scope == "attention" and not all(check.passed for check in section.checks):
        asked = shlex.join(word for word in result.overrides if not word.startswith("task="))
        text = f"what is wrong, and a command for the worst case alone: lab task=rubric {asked}"
        console.print(text.rstrip(), highlight=False, markup=False, soft_wrap=True)


def _show_verify(section: VerifySection, _: Result, console: Console) -> None:
    table = Table("check", "", "what it makes sure of")
    for check in section.checks:
        mark = "[green]pass[/]" if check.passed else f"[bold red]FAIL ({check.count})[/]"
        table.add_row(check.name, mark, check.purpose)
    console.print(table)
    for check in section.checks:
        for problem in check.problems[:PROBLEMS_SHOWN]:
            console.print(f"[red]{check.name}[/]: {escape(problem)}", highlight=False)
        if check.count > PROBLEMS_SHOWN:
            more = check.count - PROBLEMS_SHOWN
            console.print(f"[red]{check.name}[/]: and {more} more", highlight=False)
    verdict = "[green]verified[/]" if section.passed else "[bold red]NOT verified[/]"
    console.print(f"{escape(section.path)}: {verdict}", highlight=False)


def _show_doctor(section: DoctorSection, result: Result, console: Console) -> None:
    seen = result.environment
    console.print(f"  machine: {seen.cpu_model}, {seen.cpu_count} CPUs, Python {seen.python}")
    console.print(f"  device: {section.device or 'none that jax can use'}", highlight=False)
    console.print(f"  jax {seen.jax}", highlight=False)
    for part in section.pairing:
        words = {True: "[green]fits[/]", False: "[bold red]does not fit[/]", None: "not installed"}
        have = f"{part.package} {part.installed or '-'}"
        console.print(f"  {have}: {words[part.fits]} (needs {part.wanted})", highlight=False)
    console.print(f"  canary: {escape(section.canary)}", highlight=False)
    table = Table("task", "here")
    for task, answer in section.tasks.items():
        table.add_row(task, escape(answer))
    console.print(table)
    console.print(f"next: [bold]{escape(section.next_command)}[/]", highlight=False)


def _show_compile(section: CompileSection, _: Result, console: Console) -> None:
    from lab.report import compiled

    compiled.show(section, console)


def _show_rubric(section: RubricSection, result: Result, console: Console) -> None:
    from lab.grading import scorecard  # loads the grader, which `--help` does without

    candidate = result.config["candidate"]
    title, declared = (
        scorecard.title(result.cell_id, candidate),
        expectations.verdict_is_declared(candidate),
    )
    scorecard.show(section, title, console, declared=declared)


def _show_audit(section: AuditSection, _: Result, console: Console) -> None:
    from lab.grading import scorecard

    for line in scorecard.audit_lines(section.summary):
        console.print(f"  {line}", highlight=False, soft_wrap=True)
    console.print(f"  {len(section.files)} files in the run directory", highlight=False)


def _show_campaign(section: CampaignSection, _: Result, console: Console) -> None:
    table = Table("step", "as expected", "seconds", "note")
    for step in section.steps:
        mark = "yes" if step.as_expected else f"[bold red]NO[/] (exit {step.exit_code})"
        table.add_row(
            escape(step.name),
            mark,
            "" if step.seconds is None else f"{step.seconds:g}",
            escape(step.note or ""),
        )
    console.print(table)
    if section.package:
        console.print(f"packed: {section.package} beside the records", markup=False)


_SHOW: dict[str, Callable[[Any, Result, Console], None]] = {
    "benchmark": _show_benchmark,
    "campaign": _show_campaign,
    "compare": _show_compared,
    "compile": _show_compile,
    "correctness": _show_correctness,
    "rubric": _show_rubric,
    "audit": _show_audit,
    "doctor": _show_doctor,
    "verify": _show_verify,
}
