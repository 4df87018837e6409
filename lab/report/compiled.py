"""One compiled cell for a person: its time, its memory, its ops, and what bounds them."""

from __future__ import annotations

from collections.abc import Mapping

from rich import box
from rich.console import Console
from rich.table import Table

from lab.records import CompileSection
from lab.report.jinja import PAGES, count

MEANINGS: Mapping[str, str] = {
    "copy waits": "stalled on HBM traffic: fetch earlier, fetch less, or use larger blocks",
    "latency": "nothing issued, a unit's latency runs: give each step more independent work",
    "MXU": "matrix units: near 100 is what a product wants",
    "VALU": "vector arithmetic: masks, scaling, corrections, conversions",
    "EUP": "exp and reciprocal: fewer of them, or a cheaper form such as exp2",
    "XLU": "row maxima, row sums, transposes: fewer reductions a row, wider rows",
    "VLOAD": "VMEM loads: VLOAD:FILL is the part that only brings spilled registers back",
    "VSTORE": "VMEM stores: VSTORE:SPILL is the part that only spills registers; use smaller tiles",
    "HBM": "share of the chip's bandwidth that the loop's copies use",
}


UNITS_SHOWN = 3


def summary(section: CompileSection) -> str:
    """The section as Markdown of about thirty lines."""
    units = [unit for unit in _UNITS if any(loop.use.get(unit) for loop in section.loops)]
    page = PAGES.get_template("compiled.md")
    return page.render(c=section, units=units, meanings=_relevant(units))


def show(section: CompileSection, console: Console) -> None:
    """The section on a terminal: facts, the ops and the longest loops as tables, advice."""
    facts = PAGES.get_template("compiled_facts.md").render(c=section)
    console.print(facts.strip(), highlight=False, markup=False)
    console.print(_ops(section))
    if section.loops:
        console.print(_loops(section))
    for line in (*advice(section), *(f"warning: {text}" for text in section.warnings)):
        console.print(line, highlight=False, markup=False)


def _table(first: str) -> Table:
    """Narrow, and a long name in its first column goes on in the next line, whole."""
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    table.add_column(first, overflow="fold")
    return table


def _ops(section: CompileSection) -> Table:
    table = _table("op")
    table.add_column("kind", no_wrap=True)
    for name in ("runs", "cycles"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("by", no_wrap=True)
    for name in ("cost model", "schedule", "channel"):
        table.add_column(name, justify="right", no_wrap=True)
    for op in section.ops:
        figures = (op.cost_model_cycles, op.schedule_cycles, op.channel_cycles)
        table.add_row(
            op.name,
            op.kind,
            f"{op.count:,}",
            count(op.estimated_cycles),
            (op.source or "-").replace("_", " "),
            *map(count, figures),
        )
    return table


def _loops(section: CompileSection) -> Table:
    table = _table("longest loops")
    for name in ("trips", "cycles a trip", "of the op", "waits"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("busiest units")
    for loop in section.loops:
        units = sorted(loop.use, key=lambda unit: -loop.use[unit])
        busiest = [unit for unit in units if loop.use[unit] and ":" not in unit][:UNITS_SHOWN]
        table.add_row(
            f"{loop.op} {loop.loop}",
            f"{loop.trips:,}",
            f"{loop.cycles / loop.trips:,.0f}" if loop.trips else "-",
            f"{loop.share:.0%}",
            f"{loop.copy_waits:.0%}",
            ", ".join(f"{unit} {loop.use[unit]:.0%}" for unit in busiest),
        )
    return table


def advice(section: CompileSection) -> list[str]:
    """What the cell's own figures suggest, the longest loop and the largest array first."""
    lines = []
    if section.loops:
        loop = max(section.loops, key=lambda loop: loop.cycles)
        meaning = MEANINGS.get(loop.bound_by)
        lines.append(f"{loop.op} is bound by {loop.bound_by}" + (f": {meaning}" if meaning else ""))
    if any(loop.use.get("HBM", 0) > 1 for loop in section.loops):
        lines.append(
            "HBM above 100%: a loop's copies ask for more than the chip's bandwidth, or stay "
            "within VMEM, which the schedule does not tell apart"
        )
    if section.memory.temporary_bytes:
        held = f"XLA keeps {section.memory.temporary_bytes / 2**20:,.1f} MiB of temporaries in HBM"
        moved = [op for op in section.ops if op.kind == "xla" and op.hbm_bytes]
        if moved:
            most = max(moved, key=lambda op: op.hbm_bytes or 0)
            held += f"; {most.name} moves most, {(most.hbm_bytes or 0) / 2**20:,.1f} MiB"
        lines.append(f"{held}: fusing its producer and its consumer saves the traffic")
    return lines


_UNITS = ("MXU", "VALU", "EUP", "XLU", "VLOAD", "VLOAD:FILL", "VSTORE", "VSTORE:SPILL", "HBM")


def _relevant(units: list[str]) -> dict[str, str]:
    always = ("copy waits", "latency")
    return {name: text for name, text in MEANINGS.items() if name in (*always, *units)}
