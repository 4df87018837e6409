"""A stranger's file is loaded, or refused in one line that says why."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.candidates.custom import CandidateFileError, describe, load_file

GOOD = "def attention(q, k, v, *, causal, key_mask, scale):\n    return q\n"


@pytest.fixture(autouse=True)
def _restore_imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = set(sys.modules)
    yield
    for name in set(sys.modules) - known:
        del sys.modules[name]


def refusal(path: Path, function: str = "attention") -> str:
    with pytest.raises(CandidateFileError) as error:
        load_file(path, function)
    message = str(error.value)
    assert "\n" not in message
    return message


def write(folder: Path, text: str, name: str = "stranger_file.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_the_function_is_loaded_and_its_folder_is_searched_for_imports(tmp_path: Path) -> None:
    write(tmp_path, "ANSWER = 42\n", "stranger_helper.py")
    path = write(
        tmp_path,
        "from stranger_helper import ANSWER\n"
        "def attention(q, k, v, *, causal, key_mask, scale):\n    return ANSWER\n",
    )
    function = load_file(path, "attention")
    assert function(1, 2, 3, causal=True, key_mask=None, scale=None) == 42


def test_dataclasses_in_the_file_work(tmp_path: Path) -> None:
    text = "from __future__ import annotations\nfrom dataclasses import dataclass\n"
    path = write(tmp_path, text + "@dataclass\nclass A:\n    x: int = 1\n" + GOOD)
    assert callable(load_file(path, "attention"))


@pytest.mark.parametrize(
    "signature",
    ["(q, k, v, causal, key_mask, scale)", "(q, k, v, **options)", "(*arrays, **options)"],
)
def test_signatures_that_can_be_called_as_the_lab_calls_are_accepted(
    tmp_path: Path, signature: str
) -> None:
    path = write(tmp_path, f"def attention{signature}:\n    return 1\n")
    assert callable(load_file(path, "attention"))


def test_missing(tmp_path: Path) -> None:
    assert refusal(tmp_path / "nowhere.py") == f"there is no file {tmp_path / 'nowhere.py'}"


def test_no_python_file(tmp_path: Path) -> None:
    assert "is not a Python file" in refusal(tmp_path)
    assert "is not a Python file" in refusal(write(tmp_path, GOOD, "notes.txt"))


def test_syntax_error(tmp_path: Path) -> None:
    message = refusal(write(tmp_path, "x = 1\ndef attention(:\n"))
    assert message.startswith("syntax error in stranger_file.py, line 2: ")


def test_not_text(tmp_path: Path) -> None:
    path = tmp_path / "stranger_file.py"
    path.write_bytes(b"x = '\xff\xfe'\n")
    assert "stranger_file.py" in refusal(path)


def test_raises_while_imported(tmp_path: Path) -> None:
    message = refusal(write(tmp_path, "x = 1\nraise ValueError('no luck\\nsecond line')\n"))
    assert message == (
        "stranger_file.py raises while it is imported: ValueError: no luck "
        "(stranger_file.py, line 2)"
    )


def test_exits_while_imported(tmp_path: Path) -> None:
    message = refusal(write(tmp_path, "import sys\nsys.exit(0)\n"))
    assert message.startswith("stranger_file.py raises while it is imported: SystemExit: 0")


def test_lacks_the_function(tmp_path: Path) -> None:
    path = write(tmp_path, "from math import sqrt\ndef attend():\n    pass\n")
    assert refusal(path) == "stranger_file.py has no function 'attention': it defines attend"
    empty = write(tmp_path, "x = 1\n", "empty_stranger.py")
    assert refusal(empty).endswith("it defines no function")


def test_not_a_function(tmp_path: Path) -> None:
    message = refusal(write(tmp_path, "attention = 3\n"))
    assert message == "'attention' in stranger_file.py is not a function but of type int"


def test_another_signature(tmp_path: Path) -> None:
    message = refusal(write(tmp_path, "def attention(q, k, v, mask):\n    return q\n"))
    assert message.startswith("attention(q, k, v, mask) has another signature: it is called as ")
    assert "attention(q, k, v, *, causal, key_mask, scale)" in message


def test_describe_names_the_line_of_the_file_not_of_a_library(tmp_path: Path) -> None:
    path = write(tmp_path, "import json\n\ndef attention(*a, **k):\n    json.loads('{')\n")
    function = load_file(path, "attention")
    with pytest.raises(ValueError, match="Expecting property name") as error:
        function()
    assert describe(error.value, path).endswith("(stranger_file.py, line 4)")
    assert describe(error.value, Path("elsewhere.py")).endswith("(char 1)")
