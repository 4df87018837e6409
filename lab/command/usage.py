"""`--help`: the text of hydra.help.template in conf/config.yaml, with the groups there are.

`--help GROUP` describes the options of one group.

Hydra's own rendering reads every configuration source again for each group, which takes a second.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence

from omegaconf import OmegaConf

from lab.candidates import catalogue
from lab.cells.config import config_directory
from lab.command import allowed


def shown(arguments: Sequence[str]) -> bool:
    """Whether help was asked for; then it has been printed."""
    asked = bool({"-h", "--help"} & set(arguments))
    if asked:
        named = [name for name in arguments if name in allowed.groups()]
        print("\n".join(map(described, named)) if named else text())  # noqa: T201
    return asked


def text() -> str:
    """What a newcomer can act on: examples, groups and options, keys, where results go."""
    template = OmegaConf.load(config_directory() / "config.yaml").hydra.help.template
    return str(template)


def groups() -> str:
    """The configuration groups and their options, a paragraph each; the candidates are many."""
    known = allowed.groups()
    counts = Counter(entry.kind for entry in catalogue.entries().values())
    here = ", ".join(name for name in known["candidate"] if name not in catalogue.entries())
    counted = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    brief = f"candidate: {here}, and {counted} (`--help candidate` lists them)"
    return "\n".join(
        _filled(brief if name == "candidate" else f"{name}: {', '.join(options)}")
        for name, options in known.items()
    )


def described(group: str) -> str:
    """Every option of a group, the candidates by kind, each with its description."""
    entries = catalogue.entries() if group == "candidate" else {}
    lines = [
        f"{group}: {', '.join(name for name in allowed.groups()[group] if name not in entries)}"
    ]
    for kind in sorted({entry.kind for entry in entries.values()}):
        lines += ["", f"{kind} ({catalogue.EXPECTED[kind]} is the right verdict)"]
        of_kind = (entry for entry in entries.values() if entry.kind == kind)
        lines += [_filled(f"  {entry.name}: {entry.description}") for entry in of_kind]
    return "\n".join(lines)


def _filled(paragraph: str) -> str:
    return textwrap.fill(
        paragraph,
        width=98,
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
