"""`--help`: the text of hydra.help.template in conf/config.yaml, with the groups there are.

Hydra's own rendering reads every configuration source again for each group, which takes a second.
"""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Sequence

from omegaconf import OmegaConf

from lab.candidates import catalogue
from lab.cells.config import config_directory
from lab.kernels.options import KERNELS


def shown(arguments: Sequence[str]) -> bool:
    """Whether help was asked for; then it has been printed."""
    asked = bool({"-h", "--help"} & set(arguments))
    if asked:
        print(text())  # noqa: T201
    return asked


def text() -> str:
    """What a newcomer can act on: examples, groups and options, keys, where results go."""
    template = OmegaConf.load(config_directory() / "config.yaml").hydra.help.template
    return str(template)


def groups() -> str:
    """The configuration groups and their options, a paragraph each."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path in config_directory().glob("*/*.yaml"):
        found[path.parent.name].add(path.stem)
    for group, names in (("kernel", KERNELS), ("candidate", catalogue.entries())):
        found[group].update(names)
    paragraphs = []
    for group, options in sorted(found.items()):
        paragraphs.append(
            textwrap.fill(
                f"{group}: {', '.join(sorted(options))}",
                width=98,
                subsequent_indent="    ",
                break_long_words=False,
                break_on_hyphens=False,
            )
        )
    return "\n".join(paragraphs)
