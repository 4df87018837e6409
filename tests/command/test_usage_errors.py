"""A user's mistake is one short readable error and exit code 2, never a traceback."""

from __future__ import annotations

from subprocess import CompletedProcess

import pytest
from commands import Lab, run_many

MISTAKES = [
    (["kernel=palas"], ["kernel=palas", "pallas, pallas-8row,"]),
    (["kernel=null"], ["kernel", "--help"]),
    (["task.name=nope"], ["task.name=nope", "choose by task=NAME", "allowed are", "benchmark"]),
    (["shape.name=foo"], ["shape.name=foo", "choose by shape=NAME", "tiny"]),
    (["dtype.name=f32"], ["dtype.name=f32", "choose by dtype=NAME", "bf16, f32"]),
    (["candidate.kind=foo"], ["candidate.kind=foo", "choose by candidate=NAME", "--help"]),
    (["candidate.module=os"], ["candidate.module=os", "choose by candidate=NAME"]),
    (["candidate.function=f"], ["candidate.function", "add candidate=custom"]),
    (['candidate.path=""'], ["candidate.path", "add candidate=custom"]),
    (["candidate.claims=cuda"], ["candidate.claims=cuda", "null or pallas"]),
    (["target.topology=foo"], ["target.topology=foo", "v5e:2x2"]),
    (["target.cores_per_device=0"], ["target.cores_per_device=0", "at least 1"]),
    (["target.scoped_vmem_mib=-1"], ["target.scoped_vmem_mib=-1", "above 0"]),
    (["kernel=flash", "kernel.nosuch=1"], ["kernel.nosuch", "kernel.block_q"]),
    (["tune.cases=3"], ["tune.cases=3", "choose by tune=NAME"]),
    (["campaign.limit_s=-1"], ["campaign.limit_s=-1", "above 0"]),
    (["kernel=XLA"], ["kernel=XLA", "did you mean xla?"]),
    (["kernel=xla,"], ["kernel=xla,", "type kernel=xla"]),
    (["shape=tiny.yaml"], ["shape=tiny.yaml", "type shape=tiny"]),
    (["shape=../shape/tiny"], ["shape=../shape/tiny", "type shape=tiny"]),
    (["resume=3"], ["resume=3", "true or false"]),
    (["benchmark.control=2"], ["benchmark.control=2", "true or false"]),
    (["~hydra/launcher"], ["~hydra/launcher", "cannot be taken away"]),
    (["hydra.run.dir="], ["hydra.run.dir=", "a directory"]),
    (["hydra.run.dir=null"], ["hydra.run.dir=null", "null is not allowed"]),
    (["hydra.job.num=abc"], ["hydra.job.num=abc", "a whole number"]),
    (["hydra.searchpath=[nowhere]"], ["hydra.searchpath=[nowhere]", "directories that exist"]),
    (["hydra.nosuch=1"], ["hydra.nosuch", "--cfg hydra"]),
    (["-m", "hydra.sweeper.max_batch_size=x", "seq=1,2"], ["max_batch_size=x", "a whole number"]),
    (["-m", "hydra.sweeper.params=3"], ["hydra.sweeper.params=3", "one of its keys"]),
    (["-m", "seq=range(1,4,0)"], ["seq=range(1,4,0)", "a step that is not 0"]),
    (["seq=${oc.env:NOSUCH}"], ["seq=${oc.env:NOSUCH}: Environment variable 'NOSUCH' not found"]),
    (
        ["task=report", "report.runs=[${oc.env:NOSUCH}]"],
        ["report.runs=[${oc.env:NOSUCH}]: Environment variable 'NOSUCH' not found"],
    ),
    (["hydra.run.dir=${now:}"], ["hydra.run.dir=${now:}", "cannot be resolved"]),
    (["kernel=xla", "-m", "seq=1,2"], ["seq=1,2", "put -m and the like first"]),
    (["--config-name=foo"], ["--config-name=foo", "leave this flag out"]),
    (["--config-dir=/nowhere"], ["--config-dir=/nowhere", "no such directory"]),
    (["--package=x"], ["--package=x", "--cfg job"]),
    (["--experimental-rerun=x"], ["--experimental-rerun=x", "leave this flag out"]),
    (["+benchmark.sampels=3"], ["benchmark.sampels", "did you mean samples?"]),
    (["++seqq=3"], ["seqq", "did you mean seq?"]),
    (["+shape.haed_dim=3"], ["shape.haed_dim", "did you mean head_dim?"]),
    (["seq=abc"], ["seq=abc", "a whole number", "seq=256"]),
    (["seq=0"], ["seq=0", "at least 1"]),
    (["seq=-5"], ["seq=-5", "at least 1"]),
    (["seq=[1,2]"], ["seq=[1,2]", "a whole number"]),
    (["seq="], ["seq=:", "a whole number"]),
    (["seq=1e9"], ["seq=1e9", "a whole number"]),
    (["seq=99999999"], ["seq=99999999 is too long", "at most", "shorter seq"]),
    (["seq=8", "q_len=99999999"], ["q_len=99999999 is too long", "shorter q_len"]),
    (["kernel.name=xla"], ["kernel.name=xla", "choose by kernel=NAME"]),
    (["kernel.name=nosuch"], ["kernel.name=nosuch", "no such kernel", "kernel=NAME"]),
    (["kernel.module=os"], ["kernel.module is os", "choose by kernel=NAME"]),
    (["shape={}"], ["shape={}", "the name of one option"]),
    (["kernel=[a,b]"], ["kernel=[a,b]", "the name of one option"]),
    (["dtype=[bf16]"], ["dtype=[bf16]", "the name of one option"]),
    (["+kernel@x=xla"], ["+kernel@x=xla", "type kernel=NAME"]),
    (["dtype=fp8"], ["dtype=fp8", "bf16, f32"]),
    (["shape.q_heads=6", "shape.kv_heads=4"], ["q_heads=6", "kv_heads=4", "multiple"]),
    (["shape.head_dim=0"], ["head_dim=0", "at least 1"]),
    (["shape.batch=-1"], ["batch=-1", "at least 1"]),
    (["candidate=wrong_gqa"], ["candidate=wrong_gqa", "did you mean wrong-gqa?"]),
    (["no.such=1"], ["no.such", "no such key"]),
    (["benchmark.sample=3"], ["benchmark.sample", "did you mean samples?"]),
    (["kernel=xla", "kernel.block_rows=8"], ["kernel.block_rows", "no such key"]),
    (["kernel=pallas", "kernel.block_rows=12"], ["block_rows", "12", "multiple of 8"]),
    (["task=compare"], ["compare.before=DIR", "compare.after=DIR"]),
    (["task=compare", "compare.before=gone", "compare.after=."], ["compare.before=gone"]),
    (["benchmark.baseline=fast"], ["benchmark.baseline=fast", "null or xla or pallas"]),
    (["benchmark.time=soon"], ["benchmark.time=soon", "latency or device"]),
    (["benchmark.target=0"], ["benchmark.target=0", "above 0"]),
    (["benchmark.threshold=-1"], ["benchmark.threshold=-1", "at least 0"]),
    (["benchmark.max_samples=0"], ["benchmark.max_samples=0", "1 to 10000"]),
    (["compare.max_regression=-1"], ["compare.max_regression=-1", "at least 0"]),
    (["direction=sideways"], ["direction", "sideways", "forward or backward"]),
    (["regime=odd"], ["regime=odd", "normal"]),
    (["seq=128,128"], ["seq=128,128", "add -m"]),
    (["-m", "seq=128,128"], ["more than once", "-s128-"]),
    (["-m", "seq=128,abc"], ["seq=128,abc", "a whole number"]),
    (["-m", "seq=128,0"], ["seq=0", "at least 1"]),
    (["task=report"], ["report.runs"]),
    (["task=report", "report.runs=[missing]"], ["missing", "no directory"]),
    (["task=report", "report.runs=[.]"], ["no runs there"]),
    (["candidate=custom", "task=benchmark", "candidate.path=none.py"], ["none.py"]),
    (["candidate=custom"], ["candidate.path=FILE"]),
    (["kernel"], ["kernel: a value is missing", "kernel=VALUE"]),
    (["scope.name=foo"], ["scope.name=foo", "attention, softmax"]),
    (["dtype.input=int8"], ["dtype.input=int8", "bfloat16"]),
    (["candidate.expected=good"], ["candidate.expected=good", "accepted"]),
    (["candidate.tier=fp8"], ["candidate.tier=fp8", "bf16_scores"]),
    (["candidate.path=mine.py"], ["candidate.path", "candidate=custom"]),
    (["-m", "candidate.path=mine.py", "seq=16,32"], ["candidate.path", "candidate=custom"]),
    (["candidate=wrong-gqa", "scope=softmax"], ["scope=softmax", "scope=attention"]),
    (["rubric.fail_under=101"], ["rubric.fail_under=101", "0 to 100"]),
    (["target.bf16_tflops=0"], ["target.bf16_tflops=0", "above 0"]),
    (["target.topology=foo"], ["target.topology=foo", "v5e:2x2"]),
    (["audit.size=huge"], ["audit.size=huge", "quick or full"]),
    (["task=report", "report.runs=runs/x"], ["report.runs=[A,B]", "list"]),
    (["task=report", "report.runs=['']"], ["report.runs", "empty name"]),
    (["deadline_s=0"], ["deadline_s=0", "above 0"]),
    (["deadline_s=inf"], ["deadline_s=inf", "finite"]),
    (["target.clock_ghz=nan"], ["target.clock_ghz=nan", "finite"]),
    (["hydra/launcher=nojob"], ["hydra/launcher=nojob", "basic"]),
    (["-m", "hydra.sweep.subdir=x", "seq=1,2"], ["hydra.sweep.subdir=x", "hydra.sweep.dir"]),
    (["hydra.run.dir=/proc/none"], ["/proc/none", "hydra.run.dir"]),
    (["-m", "hydra.sweep.dir=/proc/none", "seq=1,2"], ["/proc/none", "hydra.sweep.dir"]),
    # What Hydra, argparse or OmegaConf would answer in their own words; see test_overrides.py.
    (
        ["candidate.path=kernel (1).py"],
        ["need quotes", """type 'candidate.path="kernel (1).py"'"""],
    ),
    (["candidate.path=a,b.py"], ["""'candidate.path="a,b.py"'"""]),
    (["seq= 256"], ["seq= 256", "blank", "type seq=256"]),
    (["seq=", "256"], ["seq= 256", "blank", "type seq=256"]),
    (["seq=${oc.env:HOME}"], ["seq=${oc.env:HOME}", "a whole number"]),
    (["seq=${nosuch}"], ["seq=${nosuch}", "give the value itself"]),
    (["seq.x=1"], ["seq.x=1", "seq has no keys", "a whole number"]),
    (["seq=null"], ["seq=null", "a whole number"]),
    (["benchmark=1"], ["benchmark=1", "benchmark.samples"]),
    (["experiment=published"], ["experiment=published", "+experiment"]),
    (["report.runs=runs/x"], ["report.runs=runs/x", "a list", "report.runs=[A,B]"]),
    (["report.runs=a,b"], ["report.runs=a,b", "type report.runs=[a,b]"]),
    (["kernel="], ["kernel=", "pallas-8row"]),
    (["hydra/launcher=nosuch"], ["hydra/launcher=nosuch", "basic"]),
    (["-m", "direction=glob(*)"], ["direction=glob(*)", "groups", "forward or backward"]),
    (["-m", "kernel=glob(nosuch*)"], ["kernel=glob(nosuch*)", "no option of kernel"]),
    (["-m", "seq=range(3,1)"], ["seq=range(3,1)", "no value"]),
    (["-m", "seq=interval(1,2)"], ["seq=interval(1,2)", "range("]),
    (["seq=range(1,3)"], ["seq=range(1,3)", "-m"]),
    (["--nosuch"], ["--nosuch", "no such flag", "--help"]),
    (["--resolve"], ["--resolve", "--cfg"]),
    (["--multirun", "--cfg", "job"], ["Only one of"]),
]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CompletedProcess[str]]:
    parent = tmp_path_factory.mktemp("mistakes")
    commands = [arguments for arguments, _ in MISTAKES]
    done = run_many(commands, parent)
    assert not list(parent.rglob("*.json")), "a mistake leaves nothing behind"
    assert not list(parent.rglob("*.yaml")), "a mistake leaves nothing behind"
    return {" ".join(c): answer for c, answer in zip(commands, done, strict=True)}


@pytest.mark.parametrize(("arguments", "words"), MISTAKES, ids=" ".join)
def test_one_readable_error_and_exit_code_2(
    answers: dict[str, CompletedProcess[str]], arguments: list[str], words: list[str]
) -> None:
    done = answers[" ".join(arguments)]
    said = done.stdout + done.stderr
    assert done.returncode == 2, said
    assert "Traceback" not in said
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1
    for word in words:
        assert word in done.stderr, done.stderr


def test_the_command_itself_says_the_same(
    lab: Lab, answers: dict[str, CompletedProcess[str]]
) -> None:
    done = lab("kernel=palas")
    assert (done.returncode, done.stderr) == (2, answers["kernel=palas"].stderr)
