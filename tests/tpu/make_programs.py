"""Make the compiled programs that the tests read: `python tests/tpu/make_programs.py [CASE ...]`.

Needs libtpu (`pip install '.[tpu]'`), no TPU. Writes tests/tpu/programs/CASE/: hlo.txt.gz,
profile.txt.gz (the HLO with static profiles) and the dumps that the analysis reads.
"""

import gzip
import re
import shutil
import sys
import tempfile
from pathlib import Path

from hydra import compose, initialize_config_dir

sys.path.insert(0, str(Path(__file__).parents[2]))
from lab import worker
from lab.cells import config
from lab.cells.cell import Cell
from lab.command import compose as command
from lab.tpu.compile import compiler
from lab.tpu.compile.answers import Answer
from lab.tpu.schedule import bundles

PROGRAMS = Path(__file__).parent / "programs"
CASES = {
    "pallas-8row-softmax": ("kernel=pallas-8row", "scope=softmax", "seq=128"),
    "xla-attention": ("kernel=xla", "scope=attention", "seq=256"),
    "xla-attention-tpu7x": ("kernel=xla", "scope=attention", "seq=256", "target=tpu7x"),
    "loop": ("candidate=custom", f"candidate.path={Path(__file__).parent / 'looping.py'}"),
}
DUMPED = ("pallas-8row-softmax",)
KEPT = re.compile(r"-\d+-(packed-bundles-post-ra|pre-delay_hlo-static-per-bundle-utilization)\.txt")


def make(case: str) -> None:
    """Compile one case and keep what the analysis reads."""
    cell = compose_cell(CASES[case])
    out = PROGRAMS / case
    shutil.rmtree(out, ignore_errors=True)
    (out / "dump").mkdir(parents=True) if case in DUMPED else out.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        given: dict[str, object] = {"cell": cell, "directory": scratch}
        (scratch / "dump").mkdir()
        flags = bundles.DUMP_FLAGS.format(directory=scratch / "dump")
        environment = compiler.environment(flags, scratch, attached=False)
        worker.call(
            "lab.tpu.compile.child:compile_cell",
            given | {"attached": False},
            Answer,
            env=environment,
            deadline_s=300,
        )
        pack(scratch / compiler.HLO_FILE, out / "hlo.txt.gz")
        for path in (scratch / "dump").iterdir():
            operation = path.name.split("-", 1)[1]
            internal = operation.startswith(("<", "TLP"))
            if case in DUMPED and KEPT.search(path.name) and not internal:
                pack(path, out / "dump" / f"0-{operation}.gz")
        flags = bundles.PROFILE_FLAG.format(directory=scratch / "dump")
        environment = compiler.environment(flags, scratch, attached=False)
        (scratch / compiler.HLO_FILE).unlink()
        try:
            worker.call(
                "lab.tpu.compile.child:profile_cell",
                given | {"cpu_limit_s": 60, "pallas_cpu_limit_s": 60},
                str,
                env=environment,
                deadline_s=300,
            )
        except worker.WorkerCrashed as crash:
            print(case, "no profile:", crash.reason)  # noqa: T201
        if (scratch / compiler.HLO_FILE).exists():
            pack(scratch / compiler.HLO_FILE, out / "profile.txt.gz")


def compose_cell(overrides: tuple[str, ...]) -> Cell:
    """The cell of a command line of task=compile."""
    command.register()
    directory = str(config.config_directory())
    with initialize_config_dir(directory, version_base="1.3"):
        composed = compose("config", overrides=["task=compile", *overrides])
    return command.cell_from(composed, overrides)


def pack(source: Path, target: Path) -> None:
    """Compress without a time stamp, so that the same text gives the same file."""
    target.write_bytes(gzip.compress(source.read_bytes(), mtime=0))


if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        make(name)
