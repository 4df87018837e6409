"""Words of the command line that cannot be read: each is named, with what to type instead."""

from __future__ import annotations

import shlex

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from lab.command import allowed, overrides
from lab.errors import UserError

UNREADABLE = [
    (
        ["candidate.path=kernel (1).py"],
        ["need quotes", """type 'candidate.path="kernel (1).py"'"""],
    ),
    (["candidate.path=a=b.py"], ["""type 'candidate.path="a=b.py"'"""]),
    (["candidate.path=ü.py"], ["""type 'candidate.path="ü.py"'"""]),
    (["candidate.function=a'b"], [r"""type "candidate.function=\"a'b\"" """.strip()]),
    (["seq= 256"], ["seq= 256", "blank", "type seq=256"]),
    (["seq=", "256"], ["seq= 256", "blank", "type seq=256"]),
    (["seq =256"], ["seq =256", "blank", "type seq=256"]),
    (["seq==128"], ["seq==128", "a whole number", "type seq=128"]),
    (["dtype=${seq}"], ["dtype=${seq}", "the name of an option"]),
    (["seq=${"], ["seq=${", "a whole number"]),
    (["seq[0]=1"], ["seq[0]", "no key", "KEY=VALUE"]),
    (["ü=1"], ["ü", "no key", "KEY=VALUE"]),
    (["=1"], ["=1", "KEY=VALUE"]),
    ([""], ["empty argument", "KEY=VALUE"]),
    (["~seq"], ["~seq", "seq=VALUE"]),
    (["+seq=5"], ["+seq=5", "type seq=5"]),
    (["+kernel=xla"], ["+kernel=xla", "type kernel=xla"]),
    (["report.runs=[a,]"], ["report.runs=[a,]", "report.runs=[a]"]),
    (["seq=foo(1)"], ["seq=foo(1)", "a whole number"]),
    (["-m", "seq=1,,2"], ["seq=1,,2", "type seq=1,2"]),
    (["--nosuch"], ["--nosuch", "no such flag", "--help"]),
    (["--cfg", "nosuch"], ["--cfg", "nosuch", "job"]),
    (["seq=" + "9" * 5000], ["seq=9999", "a whole number"]),
    (["-m", "seq=choice(1,2"], ["seq=choice(1,2", "type 'seq=choice(1,2)'"]),
    (["candidate.path=[a.py"], ["type 'candidate.path=[a.py]'"]),
    (["++kernel=xla"], ["++kernel=xla", "type kernel=xla"]),
    (["kernel=${seq}"], ["kernel=${seq}", "the name of an option"]),
    (["x" * 3000], ["xxx...", "a value is missing"]),
]


def said(*arguments: str) -> str:
    with pytest.raises(UserError) as caught:
        overrides.refuse_unreadable(arguments)
    return str(caught.value)


@pytest.mark.parametrize(("arguments", "words"), UNREADABLE, ids=lambda v: " ".join(v)[:40])
def test_a_word_is_named_with_what_to_type(arguments: list[str], words: list[str]) -> None:
    text = said(*arguments)
    assert len(text.splitlines()) == 1
    assert len(text) < 500
    for word in words:
        assert word in text, text
    for raw in ("expecting", "Lexer", "mismatched", "viable"):
        assert raw not in text


AWKWARD = "a=b|ü|a'b|a\"b|a#b|a;b|(a)|[a|{a|a}|a)|a&b|a<b|a!b|`a`|${|a,]|'a|\"a|a'\"b|a\\'b"


@pytest.mark.parametrize("value", AWKWARD.split("|"))
def test_what_is_to_be_typed_is_read_by_a_shell_and_by_hydra_as_that_value(value: str) -> None:
    text = said(f"candidate.function={value}")
    (word,) = shlex.split(text.rpartition("; type ")[2])
    read = OverridesParser.create().parse_override(word).value()
    assert (read if isinstance(read, str) else "[a") == value  # a list is closed, the rest quoted


@pytest.mark.parametrize(
    "word",
    [
        "seq=128", "kernel=xla", "candidate.path=/x/y-1.py", "candidate.path=a b.py",
        'candidate.path="a, b"', "candidate=glob(*,exclude=custom)", "seq=1,2", "seq=range(1,3)",
        "report.runs=[a,b]", "+experiment=published", "++seq=5", "hydra.sweep.dir=/x",
        "hydra/launcher=joblib", "q_len=null", "~hydra.callbacks.preflight",
    ],
)  # fmt: skip
def test_what_can_be_read_passes(word: str) -> None:
    overrides.refuse_unreadable(["-m", word])


def test_what_a_key_takes_is_read_from_the_schema() -> None:
    assert allowed.words("seq") == "a whole number, as in seq=256"
    assert allowed.words("q_len") == "a whole number or null"
    assert allowed.words("direction") == "forward or backward"
    assert allowed.words("resume") == "true or false, as in resume=true"
    assert allowed.words("report.runs") == "a list, as in report.runs=[A,B]"
    assert allowed.words("no.such") == ""
