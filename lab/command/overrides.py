"""The command line as typed: every word that Hydra could not read is refused by its own name.

Hydra parses all overrides at once and reports a grammar's tokens. Here each word is parsed alone,
before Hydra starts, and a form that does parse is looked for and shown.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from lab.command import allowed, flags, values
from lab.errors import UserError

_UNQUOTED = "blanks, brackets, quotes, = and letters beyond ASCII need quotes"
SHOWN = 120  # characters of a word; a longer one is cut
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_./@-]*")
_FORM = "an override is KEY=VALUE, as in seq=256"
_CLOSERS = {"[": "]", "{": "}", "(": ")"}


def refuse_unreadable(arguments: Sequence[str]) -> None:
    """Refuse the first flag or override that cannot be read.

    Raises:
        UserError: names it, what is allowed, and what to type.
    """
    words = flags.read(arguments)
    parser = OverridesParser.create()
    for index, word in enumerate(words):
        if problem := _problem(parser, word, words[index + 1 : index + 2]):
            raise UserError(problem)


def given(key: str, arguments: Sequence[str]) -> str:
    """The word that set a key, or the key itself where none did."""
    matching = [word for word in arguments if _parts(word)[0].lstrip("+~") == key and "=" in word]
    return cut(matching[-1]) if matching else key


def cut(text: str) -> str:
    """One line of a bearable length."""
    line = " ".join(text.split()) if "\n" in text else text
    return line if len(line) <= SHOWN else f"{line[:SHOWN]}..."


def _parts(word: str) -> tuple[str, str]:
    key, _, value = word.partition("=")
    return key.strip(), value


def _problem(parser: OverridesParser, word: str, following: Sequence[str]) -> str | None:
    key, value = _parts(word)
    plain = key.lstrip("+~")
    return (
        _misshapen(word, plain)
        or _prefixed(word, plain)
        or _blank(word, key, value, following)
        or _unreadable(parser, word, key, value)
        or values.problem(cut(word), plain, value)
    )


def _misshapen(word: str, key: str) -> str | None:
    if not word.strip():
        return f"an empty argument: {_FORM}"
    if not _KEY.fullmatch(key):
        return f"{cut(word)}: {cut(key) or 'nothing'} is no key; {_FORM}"
    if "=" not in word and not word.startswith("~"):
        return f"{cut(word)}: a value is missing; type {cut(key)}=VALUE{_allowed(key)}"
    return None


def _blank(word: str, key: str, value: str, following: Sequence[str]) -> str | None:
    """`seq= 256` is two words to a shell, and in quotes an accident."""
    around = word != word.strip() or not word.startswith(f"{key}=") or value != value.lstrip()
    if around and value.strip():
        typed = _shell(f"{key}={value.strip()}")
        return f"{cut(word)}: no blank may stand around `=`; type {typed}"
    if not value.strip() and following and "=" not in following[0]:
        joined = _shell(f"{key}={following[0]}")
        return f"{cut(word)} {cut(following[0])}: no blank may follow `=`; type {joined}"
    return None


def _unreadable(parser: OverridesParser, word: str, key: str, value: str) -> str | None:
    reason = _unread(parser, word)
    if reason is None:
        return None
    found = _allowed(key.lstrip("+~"))
    if reason.startswith("Unknown function"):
        return f"{cut(word)}: {reason}{found}; text is quoted: {quoted(key, value)}"
    for repaired in _repairs(key, value):
        if _unread(parser, repaired) is None:
            why = "this cannot be read" if repaired != _text(key, value) else _UNQUOTED
            return f"{cut(word)}: {why}{found}; type {_shell(repaired)}"
    return f"{cut(word)}: this cannot be read{found or f'; {_FORM}'}"


def _prefixed(word: str, key: str) -> str | None:
    """`~` takes a key away and `+` adds one: neither is wanted for what the schema holds."""
    if word.startswith("~") and not key.startswith(("hydra.sweeper.params.", "hydra.callbacks.")):
        return f"{cut(word)}: keys cannot be taken away; leave out the word, or type {key}=VALUE"
    group = allowed.is_group(key) and key != "experiment"
    if group and word.partition("=")[2].strip()[:1] in ("{", "["):
        return f"{cut(word)}: {key} takes the name of one option; `--help` lists them"
    if allowed.is_group(package := key.partition("@")[0]) and package != key:
        return f"{cut(word)}: a group has one place here; type {package}=NAME"
    known = group or allowed.kind(key) is not None
    if group and "${" in word:
        return f"{cut(word)}: {key} takes the name of an option; `--help` lists them"
    if known and word.startswith("+") and (group or not word.startswith("++")):
        return f"{cut(word)}: {key} is there already; type {_shell(cut(word.lstrip('+')))}"
    return None


def _unread(parser: OverridesParser, word: str) -> str | None:
    """Why Hydra does not read the word, in Hydra's words; None if it does."""
    try:
        parser.parse_override(word)
    except (HydraException, ValueError, RecursionError) as error:
        lines = str(error).splitlines() or ["unreadable"]
        return lines[1] if lines[0].startswith("Error parsing") and lines[1:] else lines[0]
    return None


def _repairs(key: str, value: str) -> Iterator[str]:
    """Words that may be what was meant, the likeliest first."""
    bare = value.strip()
    if value.startswith("="):
        yield f"{key}{value}"
    if bare[:1] in "[{" or re.match(r"\w+\(", bare):
        yield f"{key}={bare}{_missing_closers(bare)}"
    plain = key.lstrip("+~")
    quotable = allowed.takes_text(plain) and not allowed.is_group(plain)
    if "," in bare and (bare.startswith("[") or not quotable):
        # A comma too many.
        inner = bare.strip("[]")
        joined = ",".join(part.strip() for part in inner.split(",") if part.strip())
        if joined:
            yield f"{key}=[{joined}]" if bare.startswith("[") else f"{key}={joined}"
    if quotable:
        yield _text(key, value)
    elif allowed.takes_list(plain):
        items = [part.strip(" '\"") for part in bare.strip("[]").split(",")]
        yield f"{key}=[{','.join(items)}]"
        yield f"{key}=[{','.join(_literal(item) for item in items)}]"


def _missing_closers(value: str) -> str:
    opened = [_CLOSERS[c] for c in value if c in _CLOSERS]
    return "".join(c for c in reversed(opened) if value.count(c) < opened.count(c))


def _text(key: str, value: str) -> str:
    return f"{key}={_literal(value)}"


def _literal(value: str) -> str:
    """A quoted value of Hydra's grammar, in the quotes that need no escape if there are any."""
    if '"' not in value:
        escaped = re.sub(r"\\+$", lambda end: end.group() * 2, value)
        return f'"{escaped}"'
    return "'" + value.replace("'", "\\'") + "'"


def quoted(key: str, value: str) -> str:
    """The override as a shell wants it, its value quoted."""
    return _shell(_text(key, value))


def _shell(word: str) -> str:
    """The word as a shell wants it: in single quotes, or in double ones where that is readable."""
    if "'" in word and not set(word) & set("$`\\!"):
        return '"' + word.replace('"', '\\"') + '"'
    return shlex.quote(word)


def _allowed(key: str) -> str:
    if allowed.is_group(key):
        return "; allowed is the name of an option, which `--help` lists"
    found = allowed.words(key)
    return f"; allowed is {found}" if found and not found.startswith("text") else ""
