"""What is known about each candidate, from the YAML beside its family's code, without jax.

    masks.py      the functions                 masks.yaml    what they are

    known-bad:
      ignores-causal:
        {description: ..., fault_class: ..., caught_by: ..., inspired_by: ..., equivalent_when: ...}

The rest follows by rule: the module from the file, the function from the name (`ignores_causal`)
and the expected verdict from the kind, unless `function` and `expected` say otherwise.
"""

from __future__ import annotations

import functools
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml
from hydra.core.config_store import ConfigStore

# libyaml reads in a tenth of the time that PyYAML's own loader takes.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

EXPECTED = {
    "control": "accepted",
    "low-precision": "accepted_lower_tier",
    "known-bad": "rejected",
}
"""The verdict that a grader must reach on each kind, where an entry names no other."""


@dataclass(frozen=True)
class Entry:
    """One candidate, as the option `candidate=NAME` holds it.

    fault_class: what is wrong (None for a control). caught_by: the check meant to catch it.
    inspired_by: the public report of such a fault, and how
    it differs where it is only the nearest one. equivalent_when: where it shows nothing.
    """

    name: str
    kind: str
    expected: str
    description: str
    module: str
    function: str
    fault_class: str | None = None
    caught_by: str | None = None
    inspired_by: str | None = None
    equivalent_when: str | None = None


@functools.cache
def entries() -> dict[str, Entry]:
    """Every candidate with an implementation here, by name, in order.

    Raises:
        ValueError: two families declare one name.
    """
    found: dict[str, Entry] = {}
    for file in sorted(Path(__file__).parent.glob("*.yaml")):
        families = yaml.load(file.read_text(), _LOADER)  # noqa: S506 - both loaders are safe
        for kind, family in families.items():
            for name, facts in family.items():
                if name in found:
                    raise ValueError(f"{file.name}: there is a candidate {name} already")
                usual = {"function": name.replace("-", "_"), "expected": EXPECTED[kind]}
                module = f"{__package__}.{file.stem}"
                found[name] = Entry(name, kind, module=module, **{**usual, **facts})
    return dict(sorted(found.items()))


def register() -> None:
    """Make every entry an option of the group `candidate`, beside those in conf/candidate."""
    store = ConfigStore.instance()
    for name, entry in entries().items():
        known = {key: value for key, value in asdict(entry).items() if value is not None}
        store.store(group="candidate", name=name, node=known)
