"""Make the dumps that the tests of lab.tpu read: `python tests/tpu/make_fixtures.py`.

Needs libtpu (`pip install .[tpu]`), no TPU. Each case is compiled in a process of its own, for
libtpu reads its flags once. Writes tests/tpu/dumps/CASE/ (gzipped, time stamps removed) and
tests/tpu/dumps/profiles.json: libtpu's own estimate of every op, in cycles, and the versions.
"""

import argparse
import functools
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from lab.tpu.schedule import bundles

DUMPS = Path(__file__).parent / "dumps"
FLASH = {
    f"flash-{block}-{'causal' if causal else 'full'}-{length}": (block, causal, length)
    for length in (2048, 4096)
    for block in (512, 1024)
    for causal in (False, True)
}
CHECKED_IN = (
    "flash-512-causal-2048",
    "flash-512-full-2048",
    "packed",
    "softmax-8row",
    "softmax-8row-v5p",
    "splash",
    "xla-attention",
)


def build(case: str) -> tuple[Any, list[tuple[int, ...]]]:
    """(function, shapes of its bfloat16 arguments) of a case."""
    if case in FLASH:
        return flash(*FLASH[case])
    return {
        "packed": packed,
        "splash": splash,
        "softmax-8row": softmax_8row,
        "softmax-8row-v5p": softmax_8row,
        "xla-attention": xla_attention,
    }[case]()


def flash(block: int, causal: bool, length: int) -> tuple[Any, list[tuple[int, ...]]]:
    """JAX's flash attention, forward, B 1 H 8 D 128, all blocks alike."""
    from jax.experimental.pallas.ops.tpu import flash_attention as module

    blocks = module.BlockSizes(
        block_q=block, block_k_major=block, block_k=block, block_b=1,
        block_q_major_dkv=block, block_k_major_dkv=block, block_k_dkv=block, block_q_dkv=block,
        block_k_major_dq=block, block_k_dq=block, block_q_dq=block,
    )  # fmt: skip
    function = functools.partial(
        module.flash_attention, causal=causal, block_sizes=blocks, sm_scale=128**-0.5
    )
    return function, [(1, 8, length, 128)] * 3


def packed(
    length: int = 512, block_q: int = 64, block_k: int = 256
) -> tuple[Any, list[tuple[int, ...]]]:
    """Causal grouped queries: 4 query heads of one key head packed into rows by a strided copy."""
    import jax
    import jax.numpy as jnp
    from jax import lax
    from jax.experimental import pallas as pl

    def kernel(q_ref: Any, k_ref: Any, v_ref: Any, o_ref: Any) -> None:
        q = q_ref[0].reshape(4 * block_q, 128)
        block = pl.program_id(1)

        def step(j: Any, carry: Any) -> Any:
            top, total, out = carry
            keys = pl.ds(j * block_k, block_k)
            s = lax.dot_general(
                q, k_ref[0, 0, keys], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
            )
            row = block * block_q + lax.rem(lax.broadcasted_iota(jnp.int32, s.shape, 0), block_q)
            column = j * block_k + lax.broadcasted_iota(jnp.int32, s.shape, 1)
            s = jnp.where(column <= row, s, -1e30)
            new = jnp.maximum(top, s.max(-1, keepdims=True))
            p, decay = jnp.exp(s - new), jnp.exp(top - new)
            pv = lax.dot(p.astype(q.dtype), v_ref[0, 0, keys], preferred_element_type=jnp.float32)
            return new, total * decay + p.sum(-1, keepdims=True), out * decay + pv

        start = (
            jnp.full((4 * block_q, 1), -1e30, jnp.float32),
            jnp.zeros((4 * block_q, 1), jnp.float32),
            jnp.zeros((4 * block_q, 128), jnp.float32),
        )
        trips = lax.div((block + 1) * block_q + block_k - 1, block_k)
        _, total, out = lax.fori_loop(0, trips, step, start)
        o_ref[0] = (out / total).astype(o_ref.dtype).reshape(4, block_q, 128)

    def function(q: Any, k: Any, v: Any) -> Any:
        rows = pl.BlockSpec((1, 4, block_q, 128), lambda h, i: (0, h, i, 0))
        keys = pl.BlockSpec((1, 1, length, 128), lambda h, _: (0, h, 0, 0))
        return pl.pallas_call(
            kernel,
            grid=(2, length // block_q),
            in_specs=[rows, keys, keys],
            out_specs=rows,
            out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
            name="packed",
        )(q, k, v)

    return function, [(1, 8, length, 128), (1, 2, length, 128), (1, 2, length, 128)]


def splash(length: int = 512, block: int = 128) -> tuple[Any, list[tuple[int, ...]]]:
    """JAX's splash attention: which blocks it visits is data, prefetched into scalar memory."""
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernel
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as mask

    blocks = kernel.BlockSizes(block_q=block, block_kv=block, block_kv_compute=block)
    heads = mask.MultiHeadMask([mask.CausalMask((length, length)) for _ in range(8)])
    function = kernel.make_splash_mha(heads, block_sizes=blocks, head_shards=1, q_seq_shards=1)
    return function, [(8, length, 128)] * 3


def softmax_8row(length: int = 128) -> tuple[Any, list[tuple[int, ...]]]:
    """Softmax of 8 rows a grid step, fp32 out."""
    import jax
    import jax.numpy as jnp
    from jax.experimental import pallas as pl

    def kernel(x_ref: Any, o_ref: Any) -> None:
        x = x_ref[...].astype(jnp.float32)
        e = jnp.exp(x - x.max(-1, keepdims=True))
        o_ref[...] = e / e.sum(-1, keepdims=True)

    def function(x: Any) -> Any:
        block = pl.BlockSpec((8, length), lambda i: (i, 0))
        return pl.pallas_call(
            kernel,
            grid=(length,),
            in_specs=[block],
            out_specs=block,
            out_shape=jax.ShapeDtypeStruct(x.shape, jnp.float32),
            name="softmax",
        )(x)

    return function, [(8 * length, length)]


def xla_attention(length: int = 128) -> tuple[Any, list[tuple[int, ...]]]:
    """Causal attention left to XLA, which makes fusions of it."""
    import jax
    import jax.numpy as jnp

    def function(q: Any, k: Any, v: Any) -> Any:
        s = jnp.einsum("htd,hsd->hts", q, k, preferred_element_type=jnp.float32)
        s = jnp.where(jnp.tril(jnp.ones((length, length), bool)), s * 128**-0.5, -jnp.inf)
        return jnp.einsum("hts,hsd->htd", jax.nn.softmax(s).astype(q.dtype), v)

    return function, [(8, length, 128)] * 3


def compile_here(case: str) -> None:
    """Compile a case in this process, whose environment `dump` has set."""
    import jax
    import jax.numpy as jnp
    from jax.experimental import topologies

    name = "v5p:2x2x1" if case.endswith("-v5p") else "v5e:2x2"
    device = topologies.get_topology_desc(name, "tpu").devices[0]
    function, shapes = build(case)
    where = jax.sharding.SingleDeviceSharding(device)
    arguments = [jax.ShapeDtypeStruct(s, jnp.bfloat16, sharding=where) for s in shapes]
    jax.jit(function).lower(*arguments).compile()


def dump(case: str, directory: Path) -> dict[str, int | None]:
    """Compile a case in a fresh process into a directory; libtpu's estimate of each op, cycles.

    The estimate is None where libtpu's profile ends the process (see `bundles.PROFILE_FLAG`).
    """
    environment = {
        **os.environ,
        "TPU_SKIP_MDS_QUERY": "1",
        "JAX_PLATFORMS": "cpu",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        "TPU_ACCELERATOR_TYPE": "v5litepod-1",
        "TPU_WORKER_HOSTNAMES": "localhost",
    }
    command = [sys.executable, __file__, "--compile", case]
    for flags in (f"{bundles.DUMP_FLAGS} {bundles.PROFILE_FLAG}", bundles.DUMP_FLAGS):
        environment["LIBTPU_INIT_ARGS"] = flags.format(directory=directory)
        done = subprocess.run(
            command, env=environment, timeout=300, capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            break
    else:
        raise SystemExit(done.stderr)
    profiles: dict[str, int | None] = {}
    for path in directory.glob("*-packed-bundles-post-ra.txt"):
        op = re.fullmatch(r"\d+-(.*)-\d+-packed-bundles-post-ra.txt", path.name)
        if op is None or op[1].startswith("<") or op[1] == "TLP":  # the program around the ops
            continue
        profile = directory / f"{op[1]}_static_llo_profile.textproto"
        cycles = re.search(
            r"estimated_cycles: (\d+)", profile.read_text() if profile.exists() else ""
        )
        profiles[op[1]] = int(cycles[1]) if cycles else None
    return profiles


def make(case: str) -> dict[str, int | None]:
    """Replace the checked-in dumps of a case; libtpu's estimate of each op, cycles."""
    target = DUMPS / case
    target.mkdir(parents=True, exist_ok=True)
    for old in target.iterdir():
        old.unlink()
    with tempfile.TemporaryDirectory() as name:
        profiles = dump(case, Path(name))
        for op in profiles:
            found = [bundles.find_dump(Path(name), op), bundles.find_slots(Path(name), op)]
            if case.startswith("softmax"):  # small enough to keep the last pass too
                found += Path(name).glob(f"*-{op}-0?-final_bundles.txt")
            for path in found:
                if path is not None:
                    kept = re.sub(r"^\d+", "1", path.name) + ".gz"
                    (target / kept).write_bytes(gzip.compress(path.read_bytes(), 9, mtime=0))
    return profiles


def main() -> None:
    """Make every case that is checked in."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compile", metavar="CASE", help="compile one case in this process")
    case = parser.parse_args().compile
    if case is not None:
        compile_here(case)
        return
    record = {
        "versions": {name: version(name) for name in ("jax", "jaxlib", "libtpu")},
        "profiles": {case: make(case) for case in CHECKED_IN},
    }
    (DUMPS / "profiles.json").write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
