"""Ways to spoil a release, each with the check that is meant to notice."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Spoil = Callable[[Path], None]


@dataclass(frozen=True)
class Corruption:
    """`check` must fail after `spoil`; with `renewed`, every hash was made to fit again first."""

    name: str
    check: str
    spoil: Spoil
    renewed: bool = True


CORRUPTIONS: list[Corruption] = []


def corruption(check: str, *, renewed: bool = True) -> Callable[[Spoil], Spoil]:
    def keep(spoil: Spoil) -> Spoil:
        CORRUPTIONS.append(Corruption(spoil.__name__, check, spoil, renewed))
        return spoil

    return keep


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read_rows(root: Path, table: str) -> list[Row]:
    return [json.loads(line) for line in (root / f"{table}.jsonl").read_text().splitlines()]


def write_rows(root: Path, table: str, rows: list[Row]) -> None:
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (root / f"{table}.jsonl").write_text(text)


def edit_row(root: Path, table: str, where: Callable[[Row], bool], **changes: Any) -> None:
    rows = read_rows(root, table)
    row = next(row for row in rows if where(row))
    assert any(row.get(k) != v for k, v in changes.items()), "the corruption changes nothing"
    row.update(changes)
    write_rows(root, table, rows)


def edit_json(path: Path, change: Callable[[Any], None]) -> None:
    value = json.loads(path.read_text())
    before = json.dumps(value)
    change(value)
    assert json.dumps(value) != before, "the corruption changes nothing"
    path.write_text(json.dumps(value, sort_keys=True, ensure_ascii=False, indent=1) + "\n")


def raw(root: Path, start: str, profile: str = "local-cpu") -> Path:
    return next(iter(sorted((root / "raw" / profile).glob(f"{start}*.json"))))


def renew(root: Path) -> None:
    """Make every hash fit what is there: the work of a forger who knows the format."""
    hashes = {
        (p.parent.name, p.stem): sha256(p)
        for p in root.glob("raw/*/*.json")
        if p.is_file() and not p.is_symlink()
    }
    for path in sorted(root.glob("*.jsonl")):
        try:
            rows = read_rows(root, path.stem)
        except ValueError:
            continue
        if any("raw_sha256" in row for row in rows):
            for row in rows:
                known = hashes.get((row.get("profile"), row.get("record")))
                row["raw_sha256"] = known or row["raw_sha256"]
            write_rows(root, path.stem, rows)
    described = json.loads((root / "croissant.json").read_text())
    for file in described["distribution"]:
        path = root / file["contentUrl"]
        if path.is_file():
            file["sha256"] = sha256(path)
            file["contentSize"] = f"{path.stat().st_size} B"
    text = json.dumps(described, sort_keys=True, ensure_ascii=False, indent=1) + "\n"
    (root / "croissant.json").write_text(text)
    renew_sums(root)


def renew_sums(root: Path) -> None:
    names = sorted(
        p.relative_to(root).as_posix()
        for p in root.rglob("*")
        if p.is_file() and not p.is_symlink() and p.name != "SHA256SUMS"
    )
    (root / "SHA256SUMS").write_text("".join(f"{sha256(root / n)}  {n}\n" for n in names))


# --- the folder ------------------------------------------------------------------------------


@corruption("checksums", renewed=False)
def one_byte_of_the_card(root: Path) -> None:
    data = bytearray((root / "README.md").read_bytes())
    data[-5] ^= 1
    (root / "README.md").write_bytes(bytes(data))


@corruption("checksums", renewed=False)
def sums_name_a_path_outside(root: Path) -> None:
    with (root / "SHA256SUMS").open("a") as sums:
        sums.write(f"{'0' * 64}  ../outside\n")


@corruption("checksums", renewed=False)
def sums_name_an_absolute_path(root: Path) -> None:
    with (root / "SHA256SUMS").open("a") as sums:
        sums.write(f"{'0' * 64}  /etc/passwd\n")


@corruption("checksums", renewed=False)
def sums_list_a_file_twice(root: Path) -> None:
    text = (root / "SHA256SUMS").read_text()
    (root / "SHA256SUMS").write_text(text + text.splitlines()[-1] + "\n")


@corruption("checksums", renewed=False)
def sums_leave_a_file_out(root: Path) -> None:
    lines = (root / "SHA256SUMS").read_text().splitlines(keepends=True)
    (root / "SHA256SUMS").write_text("".join(lines[1:]))


@corruption("checksums", renewed=False)
def sums_are_garbage(root: Path) -> None:
    (root / "SHA256SUMS").write_bytes(b"\xff\x00 nothing of use")


@corruption("layout")
def a_strange_file(root: Path) -> None:
    (root / "extra.csv").write_text("a,b\n")


@corruption("layout")
def a_pickle_that_runs_code(root: Path) -> None:
    # Unpickling this would make a file; the test looks whether it is there.
    command = f"touch {root.parent / 'executed'}"
    (root / "raw" / "state.pkl").write_bytes(f"cos\nsystem\n(S'{command}'\ntR.".encode())


@corruption("layout")
def a_python_file(root: Path) -> None:
    (root / "benchmarks.py").write_text("raise SystemExit('run')\n")


@corruption("layout")
def a_missing_licence(root: Path) -> None:
    (root / "LICENSE-DATA").unlink()


@corruption("layout")
def a_missing_table(root: Path) -> None:
    (root / "rubric.jsonl").unlink()


@corruption("layout")
def a_link_to_a_file(root: Path) -> None:
    path = raw(root, "benchmark")
    path.rename(root.parent / "elsewhere.json")
    path.symlink_to(root.parent / "elsewhere.json")


@corruption("layout")
def a_link_to_a_folder(root: Path) -> None:
    (root / "raw" / "other").symlink_to("/", target_is_directory=True)


@corruption("layout", renewed=False)
def a_hard_link(root: Path) -> None:
    path = raw(root, "benchmark")
    os.link(path, root.parent / "twin.json")  # could be changed from outside after the check


@corruption("layout")
def a_named_pipe(root: Path) -> None:
    os.mkfifo(root / "raw" / "local-cpu" / "pipe.json")


@corruption("layout", renewed=False)
def a_name_with_a_newline(root: Path) -> None:
    (root / "raw" / "local-cpu" / "a\nb.json").write_text("{}\n")


@corruption("limits", renewed=False)
def a_huge_table(root: Path) -> None:
    os.truncate(root / "benchmarks.jsonl", 2**36)  # sparse: takes no space


@corruption("limits", renewed=False)
def a_huge_record(root: Path) -> None:
    os.truncate(raw(root, "benchmark"), 2**30)


@corruption("limits", renewed=False)
def folders_without_end(root: Path) -> None:
    deep = root.joinpath("raw", *["d"] * 12)
    deep.mkdir(parents=True)
    (deep / "x.json").write_text("{}\n")


# --- texts -----------------------------------------------------------------------------------


def _replace_text(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@corruption("strict_json")
def not_a_number(root: Path) -> None:
    _replace_text(root / "benchmarks.jsonl", '"transfer_ms": 0.5', '"transfer_ms": NaN')


@corruption("strict_json")
def infinity(root: Path) -> None:
    _replace_text(root / "benchmarks.jsonl", '"transfer_ms": 0.5', '"transfer_ms": Infinity')


@corruption("strict_json", renewed=False)
def a_number_beyond_doubles(root: Path) -> None:
    _replace_text(root / "benchmarks.jsonl", '"transfer_ms": 0.5', '"transfer_ms": 1e999')


@corruption("strict_json", renewed=False)
def a_key_twice(root: Path) -> None:
    _replace_text(root / "rubric.jsonl", '"score":', '"score": 15.0, "score":')


@corruption("strict_json")
def a_record_cut_short(root: Path) -> None:
    path = raw(root, "benchmark")
    path.write_bytes(path.read_bytes()[:-200])


@corruption("strict_json")
def a_record_nested_too_deep(root: Path) -> None:
    raw(root, "benchmark").write_text('{"a":' * 5000 + "1" + "}" * 5000)


@corruption("strict_json", renewed=False)
def a_table_cut_short(root: Path) -> None:
    path = root / "comparisons.jsonl"
    path.write_bytes(path.read_bytes()[:-30])


@corruption("strict_json", renewed=False)
def bytes_that_are_no_text(root: Path) -> None:
    path = raw(root, "benchmark")
    path.write_bytes(path.read_bytes().replace(b"Example CPU", b"Ex\xff\xfemple CPU"))


@corruption("private")
def a_home_directory_in_a_record(root: Path) -> None:
    edit_json(raw(root, "rubric"), lambda r: r.update(reason="see /home/ada/run/log.txt"))


@corruption("private")
def a_windows_path_in_a_flag(root: Path) -> None:
    flags = {"XLA_FLAGS": r"--xla_dump_to=C:\Users\ada\dump"}
    edit_json(raw(root, "rubric"), lambda r: r["environment"].update(flags=flags))


@corruption("private")
def a_host_name_in_a_record(root: Path) -> None:
    edit_json(raw(root, "rubric"), lambda r: r.update(reason="ran on worker-3.internal"))


@corruption("private")
def a_host_key_in_a_configuration(root: Path) -> None:
    edit_json(raw(root, "rubric"), lambda r: r["config"].update(hostname="deep-thought"))


@corruption("private")
def a_user_in_the_card(root: Path) -> None:
    with (root / "README.md").open("a") as card:
        card.write("\nAsk ada@deep-thought about it.\n")


# --- schema ----------------------------------------------------------------------------------


def _first(_: Row) -> bool:
    return True


@corruption("row_schema")
def an_unknown_column(root: Path) -> None:
    edit_row(root, "benchmarks", _first, speed="great")


@corruption("row_schema")
def a_missing_column(root: Path) -> None:
    rows = read_rows(root, "benchmarks")
    del rows[0]["median_ms"]
    write_rows(root, "benchmarks", rows)


@corruption("row_schema")
def text_for_a_number(root: Path) -> None:
    edit_row(root, "benchmarks", _first, median_ms="0.5")


@corruption("row_schema")
def a_negative_time(root: Path) -> None:
    edit_row(root, "benchmarks", _first, min_ms=-1.0)


@corruption("row_schema")
def an_invented_level(root: Path) -> None:
    edit_row(root, "benchmarks", _first, evidence="certified")


@corruption("row_schema")
def columns_in_another_order(root: Path) -> None:
    rows = read_rows(root, "systems")
    write_rows(root, "systems", [dict(reversed(row.items())) for row in rows])


@corruption("row_schema")
def a_renamed_unit(root: Path) -> None:
    rows = [{k.replace("median_ms", "median_us"): v for k, v in row.items()}
            for row in read_rows(root, "benchmarks")]  # fmt: skip
    write_rows(root, "benchmarks", rows)


@corruption("record_schema")
def an_unknown_field_in_a_record(root: Path) -> None:
    edit_json(raw(root, "rubric"), lambda r: r.update(note="trust me"))


@corruption("record_schema")
def a_record_of_another_schema_version(root: Path) -> None:
    edit_json(raw(root, "rubric"), lambda r: r.update(schema_version=2))


@corruption("record_schema")
def two_records_under_each_others_names(root: Path) -> None:
    a, b = sorted((root / "raw" / "local-cpu").glob("benchmark-xla-attention*"))[:2]
    first, second = a.read_bytes(), b.read_bytes()
    a.write_bytes(second)
    b.write_bytes(first)


@corruption("versions")
def a_release_of_another_schema_version(root: Path) -> None:
    edit_json(root / "release.json", lambda m: m.update(schema_version=2))


@corruption("counts")
def a_manifest_that_counts_more(root: Path) -> None:
    edit_json(root / "release.json", lambda m: m["tables"].update(benchmarks=1000))


# --- rows and records ------------------------------------------------------------------------


@corruption("records", renewed=False)
def a_sample_changed_and_the_sums_renewed(root: Path) -> None:
    def change(record: Row) -> None:
        record["benchmark"]["samples_ms"][3] *= 0.9

    edit_json(raw(root, "benchmark"), change)
    renew_sums(root)  # the hashes in the rows stay as they were


@corruption("records")
def a_row_dropped(root: Path) -> None:
    write_rows(root, "benchmarks", read_rows(root, "benchmarks")[1:])


@corruption("records")
def the_failed_first_bootstrap_dropped(root: Path) -> None:
    rows = [row for row in read_rows(root, "bootstrap") if row["ready"]]
    write_rows(root, "bootstrap", rows)


@corruption("records")
def a_failed_check_dropped(root: Path) -> None:
    rows = read_rows(root, "correctness")
    write_rows(root, "correctness", rows[:-1])


@corruption("records")
def a_row_without_a_record(root: Path) -> None:
    raw(root, "rubric-wrong-gqa").unlink()


@corruption("keys")
def a_row_doubled(root: Path) -> None:
    rows = read_rows(root, "benchmarks")
    write_rows(root, "benchmarks", [rows[0], *rows])


@corruption("keys")
def two_rows_swapped(root: Path) -> None:
    rows = read_rows(root, "comparisons")
    write_rows(root, "comparisons", [rows[1], rows[0], *rows[2:]])


@corruption("cases")
def a_row_under_another_kernel(root: Path) -> None:
    edit_row(root, "benchmarks", lambda r: r["kernel"] == "xla", kernel="flash")


@corruption("cases")
def a_row_of_another_length(root: Path) -> None:
    edit_row(root, "estimates", lambda r: r["seq"] == 2048, seq=2049)


@corruption("cases")
def a_level_raised_in_a_row(root: Path) -> None:
    edit_row(root, "benchmarks", lambda r: r["evidence"] == "interpreted", evidence="measured")


@corruption("cases")
def a_failure_called_done(root: Path) -> None:
    path = raw(root, "rubric-wrong-gqa")
    edit_json(path, lambda r: r.update(status="failed", reason="out of memory"))


@corruption("coherent_records")
def a_record_of_another_length_than_configured(root: Path) -> None:
    edit_json(raw(root, "benchmark"), lambda r: r["config"].update(seq=64, q_len=64))


@corruption("coherent_records")
def another_configuration_under_the_same_id(root: Path) -> None:
    edit_json(raw(root, "benchmark"), lambda r: r["config"]["shape"].update(head_dim=64))


@corruption("coherent_records")
def a_record_that_ended_before_it_began(root: Path) -> None:
    earlier = "2026-11-29T00:00:00.000+00:00"
    edit_json(raw(root, "rubric"), lambda r: r.update(finished_at=earlier))


@corruption("systems")
def another_processor(root: Path) -> None:
    edit_row(root, "systems", _first, cpu_model="A faster one")


@corruption("systems")
def a_system_dropped(root: Path) -> None:
    write_rows(root, "systems", read_rows(root, "systems")[:-1])


@corruption("bootstrap")
def a_first_pairing_that_fits_after_all(root: Path) -> None:
    changed = {"pairing_fits": True, "ready": True}
    edit_row(root, "bootstrap", lambda r: not r["ready"], **changed)


@corruption("provenance")
def another_commit(root: Path) -> None:
    edit_row(root, "provenance", _first, commit="f" * 40)


@corruption("provenance")
def another_command(root: Path) -> None:
    edit_row(root, "provenance", _first, overrides="kernel=xla")


# --- figures ---------------------------------------------------------------------------------


def _samples(change: Callable[[list[float]], None]) -> Callable[[Row], None]:
    return lambda record: change(record["benchmark"]["samples_ms"])


@corruption("samples")
def faster_samples_with_all_hashes_renewed(root: Path) -> None:
    def change(samples: list[float]) -> None:
        samples[:] = [ms / 2 for ms in samples]

    edit_json(raw(root, "benchmark"), _samples(change))


@corruption("samples")
def a_slow_sample_dropped(root: Path) -> None:
    edit_json(raw(root, "benchmark"), _samples(lambda s: s.remove(max(s))))


@corruption("samples")
def a_sample_of_no_time(root: Path) -> None:
    edit_json(raw(root, "benchmark"), _samples(lambda s: s.__setitem__(s.index(min(s)), 0.0)))


@corruption("summaries")
def one_sample_that_leaves_the_median(root: Path) -> None:
    edit_json(raw(root, "benchmark"), _samples(lambda s: s.__setitem__(s.index(max(s)), 1e3)))


@corruption("summaries")
def a_better_median(root: Path) -> None:
    row = read_rows(root, "benchmarks")[0]
    edit_row(root, "benchmarks", _first, median_ms=row["median_ms"] * 0.99)


@corruption("summaries")
def microseconds_in_a_column_of_milliseconds(root: Path) -> None:
    rows = read_rows(root, "benchmarks")
    for row in rows:
        row.update({k: v * 1000 for k, v in row.items() if k.endswith("_ms") and v is not None})
    write_rows(root, "benchmarks", rows)


@corruption("summaries")
def compilation_shown_as_transfer(root: Path) -> None:
    row = read_rows(root, "benchmarks")[0]
    changed = {"compile_ms": row["transfer_ms"], "transfer_ms": row["compile_ms"]}
    edit_row(root, "benchmarks", _first, **changed)


@corruption("summaries")
def a_narrower_interval(root: Path) -> None:
    row = read_rows(root, "benchmarks")[0]
    edit_row(root, "benchmarks", _first, median_lo_ms=row["median_ms"])


@corruption("summaries")
def an_outlier_not_counted(root: Path) -> None:
    row = read_rows(root, "benchmarks")[0]
    edit_row(root, "benchmarks", _first, outliers=row["outliers"] + 3)


@corruption("ratios")
def a_better_ratio(root: Path) -> None:
    row = read_rows(root, "comparisons")[0]
    edit_row(root, "comparisons", _first, slowdown=row["slowdown"] * 0.95)


@corruption("ratios")
def a_ratio_and_its_time(root: Path) -> None:
    row = read_rows(root, "comparisons")[0]
    changed = {"slowdown": row["slowdown"] / 2, "kernel_ms": row["kernel_ms"] / 2}
    edit_row(root, "comparisons", _first, **changed)


@corruption("ratios")
def a_ratio_against_another_case(root: Path) -> None:
    rows = read_rows(root, "comparisons")
    other = next(r for r in rows if r["baseline_cell"] != rows[0]["baseline_cell"])
    edit_row(root, "comparisons", _first, baseline_cell=other["baseline_cell"])


@corruption("ratios")
def the_other_source_of_two_estimates(root: Path) -> None:
    estimates = read_rows(root, "estimates")
    row = next(r for r in read_rows(root, "comparisons") if r["evidence"] == "estimated")
    of = {r["record"]: r for r in estimates}
    below, above = of[row["baseline_cell"]]["schedule_ms"], of[row["kernel_cell"]]["schedule_ms"]
    changed = {"baseline_ms": below, "kernel_ms": above, "slowdown": above / below}
    edit_row(root, "comparisons", lambda r: r["kernel_cell"] == row["kernel_cell"], **changed)


@corruption("ratios")
def the_band_of_two_estimates_left_out(root: Path) -> None:
    row = next(r for r in read_rows(root, "comparisons") if r["evidence"] == "estimated")
    changed = {"slowdown_lo": None, "slowdown_hi": None}
    edit_row(root, "comparisons", lambda r: r["kernel_cell"] == row["kernel_cell"], **changed)


@corruption("ratios")
def an_unwelcome_ratio_dropped(root: Path) -> None:
    write_rows(root, "comparisons", read_rows(root, "comparisons")[1:])


@corruption("ratios")
def an_interval_without_doubt(root: Path) -> None:
    row = next(r for r in read_rows(root, "comparisons") if r["slowdown_lo"])
    only = {"slowdown_lo": row["slowdown"], "slowdown_hi": row["slowdown"]}
    edit_row(root, "comparisons", lambda r: r["slowdown_lo"] is not None, **only)


@corruption("correctness")
def a_failing_check_flipped(root: Path) -> None:
    def change(record: Row) -> None:
        record["correctness"]["checks"][0].update(error=3.0)  # passed stays true

    edit_json(raw(root, "correctness"), change)


@corruption("correctness")
def a_bound_loosened_in_a_row(root: Path) -> None:
    edit_row(root, "correctness", _first, bound=100.0)


@corruption("correctness")
def an_error_of_nothing(root: Path) -> None:
    edit_row(root, "correctness", _first, error=0.0)


@corruption("correctness")
def timed_although_wrong(root: Path) -> None:
    gate = {"passed": False, "error": 7.0}
    edit_json(raw(root, "benchmark"), lambda r: r["benchmark"]["gate"].update(gate))


@corruption("scores")
def a_better_score(root: Path) -> None:
    edit_json(raw(root, "rubric-wrong-gqa"), lambda r: r["rubric"].update(score=15.0))


@corruption("scores")
def a_verdict_flipped_in_a_row(root: Path) -> None:
    edit_row(root, "rubric", lambda r: r["kernel"] == "wrong-gqa", verdict="accepted")


@corruption("scores")
def accepted_below_its_tier(root: Path) -> None:
    edit_json(raw(root, "rubric-wrong-gqa"), lambda r: r["rubric"].update(verdict="accepted"))


@corruption("estimates")
def half_an_estimate(root: Path) -> None:
    row = read_rows(root, "estimates")[0]
    edit_row(root, "estimates", _first, estimated_ms=row["estimated_ms"] / 2)


@corruption("estimates")
def half_an_estimate_in_its_record_too(root: Path) -> None:
    path = raw(root, "compile", "tpu-v5e-compiled")
    ms = json.loads(path.read_text())["compile"]["estimated_ms"]
    edit_json(path, lambda r: r["compile"].update(estimated_ms=ms / 2))


@corruption("estimates")
def a_lower_floor(root: Path) -> None:
    path = raw(root, "compile", "tpu-v5e-compiled")
    edit_json(path, lambda r: r["compile"].update(floor_ms=0.0005))


@corruption("estimates")
def fewer_cycles_than_the_source(root: Path) -> None:
    path = raw(root, "compile-xla", "tpu-v5e-compiled")
    edit_json(path, lambda r: r["compile"]["ops"][0].update(cost_model_cycles=99_999_999))


@corruption("record_schema")
def an_estimate_below_the_floor(root: Path) -> None:
    path = raw(root, "compile", "tpu-v5e-compiled")
    edit_json(path, lambda r: r["compile"].update(floor_ms=99.0))


@corruption("record_schema")
def an_estimate_and_a_reason_for_none(root: Path) -> None:
    path = raw(root, "compile", "tpu-v5e-compiled")
    edit_json(path, lambda r: r["compile"].update(no_estimate="data-dependent"))


# --- claims ----------------------------------------------------------------------------------


@corruption("levels")
def interpreted_called_measured(root: Path) -> None:
    edit_json(raw(root, "benchmark-pallas"), lambda r: r.update(evidence="measured"))


@corruption("levels")
def interpreted_called_measured_and_not_interpreted(root: Path) -> None:
    changed = {"evidence": "measured", "interpret": False}
    edit_json(raw(root, "benchmark-pallas"), lambda r: r.update(changed))


@corruption("levels")
def an_estimate_called_measured(root: Path) -> None:
    path = raw(root, "compile", "tpu-v5e-compiled")
    edit_json(path, lambda r: r.update(evidence="measured"))


@corruption("levels")
def an_estimate_called_compiled(root: Path) -> None:
    path = raw(root, "compile", "tpu-v5e-compiled")
    edit_json(path, lambda r: r.update(evidence="compiled"))


@corruption("levels")
def a_comparison_above_its_weaker_side(root: Path) -> None:
    edit_row(root, "comparisons", lambda r: r["evidence"] == "interpreted", evidence="measured")


@corruption("complete")
def a_case_removed_with_all_its_rows(root: Path) -> None:
    path = raw(root, "benchmark-pallas-8row-attention-s2048", "kaggle-v5e-8")
    path.unlink()
    for table in ("benchmarks", "provenance", "comparisons"):
        rows = read_rows(root, table)
        kept = [
            r for r in rows
            if not (r["profile"] == "kaggle-v5e-8"
                    and path.stem in (r.get("record"), r.get("kernel_cell")))
        ]  # fmt: skip
        assert len(kept) < len(rows)
        write_rows(root, table, kept)


@corruption("complete")
def fewer_devices_than_the_profile(root: Path) -> None:
    path = raw(root, "benchmark", "kaggle-v5e-8")
    edit_json(path, lambda r: r["environment"].update(device_count=1))


@corruption("complete")
def records_of_two_codes(root: Path) -> None:
    path = raw(root, "benchmark", "kaggle-v5e-8")
    edit_json(path, lambda r: r.update(code_sha256="ab" * 32))


@corruption("complete")
def a_profile_that_asks_for_less(root: Path) -> None:
    def change(manifest: Row) -> None:
        manifest["profiles"]["kaggle-v5e-8"]["definition"]["require"] = []

    edit_json(root / "release.json", change)


@corruption("complete")
def a_profile_of_an_unknown_name(root: Path) -> None:
    def change(manifest: Row) -> None:
        manifest["profiles"]["tpu-v9"] = manifest["profiles"].pop("kaggle-v5e-8")

    edit_json(root / "release.json", change)


@corruption("complete")
def a_required_check_renamed(root: Path) -> None:
    def change(record: Row) -> None:
        record["correctness"]["checks"][0].update(name="something_easy")

    edit_json(raw(root, "correctness", "kaggle-v5e-8"), change)


# --- what is generated -----------------------------------------------------------------------


@corruption("generated")
def a_unit_changed_in_the_schema(root: Path) -> None:
    _replace_text(root / "schema" / "benchmarks.json", '"unit": "ms"', '"unit": "s"')


@corruption("generated")
def a_limit_dropped_from_the_schema(root: Path) -> None:
    _replace_text(root / "schema" / "benchmarks.json", '"minimum": 0', '"minimum": -1')


@corruption("generated")
def a_card_that_claims_more(root: Path) -> None:
    _replace_text(root / "README.md", "never speed", "and speed")


@corruption("generated")
def a_croissant_column_renamed(root: Path) -> None:
    _replace_text(root / "croissant.json", '"column": "median_ms"', '"column": "min_ms"')


@corruption("generated")
def a_record_reformatted(root: Path) -> None:
    path = raw(root, "rubric")
    path.write_text(json.dumps(json.loads(path.read_text())))


@corruption("generated")
def another_data_licence(root: Path) -> None:
    _replace_text(root / "LICENSE-DATA", "Attribution 4.0", "Attribution-NonCommercial 4.0")
