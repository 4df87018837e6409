"""Building: the same bytes for the same records, refusals with every reason, no half release."""

from __future__ import annotations

import json
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import factory
import pytest

from lab.errors import UserError
from lab.release.build import assemble as build
from lab.release.build import profiles
from lab.release.build.assemble import Built

Runs = Callable[[list[dict[str, Any]]], Path]


def contents(root: Path) -> dict[str, bytes]:
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def update(out: Path, name: str, *sources: Path) -> Built:
    return build.update(out, profiles.load_all()[name], list(sources))


def test_the_same_records_give_the_same_bytes_in_any_order(runs: Runs, tmp_path: Path) -> None:
    records = factory.local_cpu()
    update(tmp_path / "a", "local-cpu", runs(records))
    random.Random(1).shuffle(records)
    update(tmp_path / "b", "local-cpu", runs(records))
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_without_runs_a_profile_is_rebuilt_from_its_raw_records(
    good_release: Path, tmp_path: Path
) -> None:
    out = tmp_path / "dataset"
    for name, data in contents(good_release).items():
        if name.startswith("raw/") or name == build.MANIFEST:
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_bytes(data)
    update(out, "local-cpu")
    assert contents(out) == contents(good_release)


def test_the_order_in_which_profiles_arrive_leaves_no_trace(
    runs: Runs, good_release: Path, tmp_path: Path
) -> None:
    update(tmp_path / "d", "kaggle-v5e-8", runs(factory.kaggle()))
    update(tmp_path / "d", "local-cpu", runs(factory.local_cpu()))
    update(tmp_path / "d", "tpu-v5e-compiled", runs(factory.tpu_compiled()))
    assert contents(tmp_path / "d") == contents(good_release)


def test_replacing_a_profile_drops_its_old_records(runs: Runs, tmp_path: Path) -> None:
    records = factory.local_cpu()
    extra = factory.record("rubric", kernel="pallas", candidate="extra", kind="control",
                           section=factory.graded("accepted"))  # fmt: skip
    update(tmp_path / "d", "local-cpu", runs([*records, extra]))
    assert any("extra" in name for name in contents(tmp_path / "d"))
    update(tmp_path / "d", "local-cpu", runs(records))
    assert not any("extra" in name for name in contents(tmp_path / "d"))


def test_a_run_that_misses_its_profile_is_refused_with_every_reason(
    runs: Runs, tmp_path: Path
) -> None:
    records = factory.kaggle()
    by_id = {r["cell_id"].rpartition("-")[0]: r for r in records}
    short = by_id["benchmark-xla-attention-s128-bf16-forward"]
    short["benchmark"]["samples_ms"] = short["benchmark"]["samples_ms"][:19]
    by_id["benchmark-xla-attention-s256-bf16-forward"]["environment"]["device_count"] = 4
    by_id["benchmark-xla-attention-s512-bf16-forward"]["benchmark"]["devices_used"] = 8
    bad = by_id["correctness-xla-attention-s256-bf16-forward"]["correctness"]["checks"]
    bad[0].update(passed=False, error=9.0)
    del bad[1]
    failed = by_id["benchmark-xla-softmax-s128-bf16-forward"]
    failed.update(status="failed", reason="out of memory", evidence=None)
    del failed["benchmark"]
    by_id["benchmark-xla-softmax-s256-bf16-forward"]["environment"]["dirty"] = True
    by_id["benchmark-xla-softmax-s512-bf16-forward"]["code_sha256"] = "ab" * 32
    kept = [r for r in records if not r["cell_id"].startswith("benchmark-xla-softmax-s2048-")]

    built = update(tmp_path / "d", "kaggle-v5e-8", runs(kept))
    text = "\n".join(built.refused)
    for reason in (
        "19 samples, exactly 20 required",
        "4 devices visible, not 8",
        "8 devices used, 1 required",
        "check causal failed",
        "check padding missing",
        "failed: out of memory",
        "uncommitted code",
        "records of different code",
        "scope=softmax seq=2048 shape=published: no record",
    ):
        assert reason in text
    assert not (tmp_path / "d").exists()  # nothing was written


def test_a_profile_needs_a_look_that_found_the_machine_ready(runs: Runs, tmp_path: Path) -> None:
    records = [r for r in factory.kaggle() if r["task"] != "doctor"]
    records.append(factory.doctor(fits=False, minute=1))
    built = update(tmp_path / "d", "kaggle-v5e-8", runs(records))
    assert any("none found it ready" in reason for reason in built.refused)


def test_a_failed_first_pairing_stays_in_the_data(good_release: Path) -> None:
    rows = [json.loads(x) for x in (good_release / "bootstrap.jsonl").read_text().splitlines()]
    assert [row["pairing_fits"] for row in rows] == [False, True]
    assert rows[0]["advice"] == "install jax 0.6.2"
    assert (good_release / "raw" / "kaggle-v5e-8" / f"{rows[1]['record']}.json").is_file()


def test_cases_that_failed_are_rows(runs: Runs, tmp_path: Path) -> None:
    extra = factory.record("benchmark", kernel="pallas", seq=8192, evidence=None,
                           section=factory.timed(1.0, rng=random.Random(0)))  # fmt: skip
    del extra["benchmark"]
    extra.update(status="timeout", reason="no answer within 600 s", evidence=None)
    built = update(tmp_path / "d", "local-cpu", runs([*factory.local_cpu(), extra]))
    assert built.refused == ()
    rows = [json.loads(x) for x in (tmp_path / "d/benchmarks.jsonl").read_text().splitlines()]
    row = next(r for r in rows if r["seq"] == 8192)
    assert (row["status"], row["reason"]) == ("timeout", "no answer within 600 s")
    assert row["median_ms"] is None


def test_one_cell_twice_is_refused(runs: Runs, tmp_path: Path) -> None:
    records = factory.local_cpu()
    built = update(tmp_path / "d", "local-cpu", runs(records), runs(records[:1]))
    assert any("2 records" in reason for reason in built.refused)


def test_runs_without_a_result_are_named(runs: Runs, tmp_path: Path) -> None:
    folder = runs(factory.local_cpu())
    (folder / "killed").mkdir()
    (folder / "killed" / "status.json").write_text("{}")
    (folder / "003" / "result.json").write_text('{"schema_version": 1, "task"')
    built = update(tmp_path / "d", "local-cpu", folder)
    assert any("killed: a run without a result" in reason for reason in built.refused)
    assert any("003/result.json: not JSON" in reason for reason in built.refused)


def test_paths_are_scrubbed_and_names_refused(runs: Runs, tmp_path: Path) -> None:
    records = factory.local_cpu()
    records[0]["environment"]["flags"] = {"XLA_FLAGS": "--xla_dump_to=/home/lovelace/dump"}
    built = update(tmp_path / "d", "local-cpu", runs(records))
    assert built.refused == ()
    text = "".join(p.read_text() for p in (tmp_path / "d/raw").rglob("*.json"))
    assert "--xla_dump_to=<path>/dump" in text
    assert "lovelace" not in text

    records[1]["overrides"] = ["candidate.function=lovelace"]
    built = update(tmp_path / "d", "local-cpu", runs(records))
    assert any("names 'lovelace'" in reason for reason in built.refused)


def test_a_host_name_is_refused(runs: Runs, tmp_path: Path) -> None:
    records = factory.local_cpu()
    records[0]["overrides"] = ["candidate.name=node-7.internal"]
    built = update(tmp_path / "d", "local-cpu", runs(records))
    assert any("host name 'node-7.internal'" in reason for reason in built.refused)


def test_a_folder_that_is_no_release_is_left_alone(runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(UserError, match="neither empty nor a release"):
        update(tmp_path / "mine", "local-cpu", runs(factory.local_cpu()))
    assert contents(tmp_path / "mine") == {"thesis.tex": b"x"}


def test_no_runs_and_no_raw_records_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"give release\.runs=\[DIR\]"):
        update(tmp_path / "d", "local-cpu")


def test_a_gpu_profile_is_named_by_its_device(runs: Runs, tmp_path: Path) -> None:
    gpu = {"platform": "gpu", "device_kind": "NVIDIA H200", "device_count": 1}
    records = [
        factory.doctor(fits=True, minute=0, **gpu),
        factory.record("correctness", section=factory.checks(), **gpu),
        *factory.benchmarks(("xla",), **gpu),
    ]
    built = update(tmp_path / "d", "gpu-{device}", runs(records))
    assert built.refused == ()
    assert built.profile == "gpu-nvidia-h200"


def pack(folder: Path, path: Path, names: dict[str, str] | None = None) -> Path:
    with zipfile.ZipFile(path, "w") as packed:
        for file in sorted(folder.rglob("*.json")):
            packed.write(file, file.relative_to(folder).as_posix())
        for name, text in (names or {}).items():
            packed.writestr(name, text)
    return path


def test_a_packed_campaign_is_taken_like_its_folder(runs: Runs, tmp_path: Path) -> None:
    folder = runs(factory.local_cpu())
    update(tmp_path / "a", "local-cpu", folder)
    update(tmp_path / "b", "local-cpu", pack(folder, tmp_path / "campaign.zip"))
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


@pytest.mark.parametrize("name", ["../result.json", "/etc/result.json", "a\\..\\result.json"])
def test_a_packed_file_that_leaves_its_folder_is_refused(
    name: str, runs: Runs, tmp_path: Path
) -> None:
    path = pack(runs(factory.local_cpu()), tmp_path / "c.zip", {name: "{}"})
    with pytest.raises(UserError, match="leaves the folder"):
        update(tmp_path / "d", "local-cpu", path)


def test_a_packed_link_is_refused(runs: Runs, tmp_path: Path) -> None:
    path = pack(runs(factory.local_cpu()), tmp_path / "c.zip")
    with zipfile.ZipFile(path, "a") as packed:
        link = zipfile.ZipInfo("x/result.json")
        link.external_attr = 0o120777 << 16
        packed.writestr(link, "/etc/passwd")
    with pytest.raises(UserError, match="is a link"):
        update(tmp_path / "d", "local-cpu", path)


def test_a_packed_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for number in range(3):
            packed.writestr(f"{number}/result.json", b" " * (200 * 2**20))
    with pytest.raises(UserError, match="bytes unpacked; refused"):
        update(tmp_path / "d", "local-cpu", path)


def test_other_files_are_no_runs(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(UserError, match="neither a directory of runs nor a packed campaign"):
        update(tmp_path / "d", "local-cpu", tmp_path / "notes.txt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"no result\.json"):
        update(tmp_path / "d", "local-cpu", tmp_path / "empty")


def test_a_record_that_fits_no_row_is_refused_not_published(runs: Runs, tmp_path: Path) -> None:
    extra = factory.record("rubric", kernel="pallas", candidate="odd", kind="a kind with spaces",
                           section=factory.graded("accepted"))  # fmt: skip
    built = update(tmp_path / "d", "local-cpu", runs([*factory.local_cpu(), extra]))
    assert any("kind" in reason for reason in built.refused)
    assert not (tmp_path / "d").exists()
