"""A good release passes; each way to spoil it is noticed by the check meant for it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import tampering
from tampering import CORRUPTIONS, Corruption

from lab.errors import UserError
from lab.release.verify import run as verify


def failed(root: Path) -> dict[str, tuple[str, ...]]:
    return {c.name: c.problems for c in verify.verify(root) if not c.passed}


@pytest.fixture
def copy(good_release: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good_release, tmp_path / "dataset"))


def test_the_good_release_passes(good_release: Path) -> None:
    assert failed(good_release) == {}


def test_a_copy_with_renewed_hashes_is_the_same_release(copy: Path, good_release: Path) -> None:
    """So that what the corruptions show is the corruption, not the renewal."""
    tampering.renew(copy)
    for path in good_release.rglob("*"):
        if path.is_file():
            assert (copy / path.relative_to(good_release)).read_bytes() == path.read_bytes()


def test_there_are_many_corruptions_and_each_check_has_one() -> None:
    assert len(CORRUPTIONS) >= 80
    assert len({c.name for c in CORRUPTIONS}) == len(CORRUPTIONS)
    assert {c.check for c in CORRUPTIONS} == set(verify.CHECKS)


@pytest.mark.parametrize("corruption", CORRUPTIONS, ids=lambda c: c.name)
def test_each_corruption_is_caught_by_its_check(corruption: Corruption, copy: Path) -> None:
    corruption.spoil(copy)
    if corruption.renewed:
        tampering.renew(copy)
    found = failed(copy)
    assert corruption.check in found
    assert not any("the check broke" in p for problems in found.values() for p in problems)
    if corruption.renewed:
        assert "checksums" not in found  # the hashes fit: the meaning gave it away
    assert not (copy.parent / "executed").exists()


def test_no_check_stops_the_next(copy: Path) -> None:
    for name in ("benchmarks.jsonl", "release.json", "SHA256SUMS", "croissant.json"):
        (copy / name).write_bytes(b"\x00garbage")
    found = {c.name: c for c in verify.verify(copy)}
    assert set(found) == set(verify.CHECKS)
    assert not found["strict_json"].passed
    assert not found["checksums"].passed
    assert found["scores"].passed


def test_an_empty_folder_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the folder is empty"):
        verify.verify(tmp_path)


def test_a_folder_of_something_else_fails_without_a_crash(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no release")
    found = failed(tmp_path)
    assert {"layout", "complete", "generated"} <= set(found)
    assert not any("the check broke" in p for problems in found.values() for p in problems)


def test_a_missing_folder_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"verify\.path=.*no such folder"):
        verify.verify(tmp_path / "nowhere")


def test_a_long_list_of_problems_is_cut_but_counted(copy: Path) -> None:
    for number in range(80):
        (copy / f"extra-{number}.txt").write_text("x")
    layout = next(c for c in verify.verify(copy) if c.name == "layout")
    assert layout.count == 80
    assert len(layout.problems) == verify.MAX_PROBLEMS


def test_a_clone_may_carry_its_git_folder(copy: Path) -> None:
    (copy / ".git").mkdir()
    (copy / ".git" / "config").write_text("[core]\n")
    (copy / ".gitattributes").write_text("*.jsonl text eol=lf\n")
    assert failed(copy) == {}
