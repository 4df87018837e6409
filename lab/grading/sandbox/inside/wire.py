"""Messages between the lab and a sandboxed process: a JSON header and raw array bytes.

No pickle, no `.npy` objects: nothing that is received can name code to run. A frame is the
header's length (4 bytes, big-endian), the header (JSON, UTF-8), and the bytes of its arrays, in
C order, one after the other; `header["arrays"]` lists each one's dtype and shape.

Loaded by path in the child too, so it imports nothing of the lab.
"""

from __future__ import annotations

import json
import math
import struct
from typing import TYPE_CHECKING, Any

import ml_dtypes  # noqa: F401 - gives NumPy the dtype name "bfloat16"
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Array = np.ndarray[Any, np.dtype[Any]]

PREFIX = struct.Struct(">I")
MAX_HEADER_BYTES = 1 << 20
DTYPES = ("bfloat16", "float16", "float32", "float64", "bool", "int32", "uint8")


class Malformed(Exception):  # noqa: N818 - names what the frame is
    """The bytes are not a frame, or a larger one than allowed; the message says in what way."""


def encode(header: dict[str, Any], arrays: Sequence[Array] = ()) -> bytes:
    """One frame."""
    listed = [{"dtype": a.dtype.name, "shape": list(a.shape)} for a in arrays]
    text = json.dumps({**header, "arrays": listed}).encode()
    return b"".join([PREFIX.pack(len(text)), text, *_raw(arrays)])


def _raw(arrays: Sequence[Array]) -> Iterable[bytes]:
    return (np.ascontiguousarray(a).tobytes() for a in arrays)


def header_length(prefix: bytes) -> int:
    """Bytes of the header that follows; Malformed when over the limit."""
    (length,) = PREFIX.unpack(prefix)
    if length > MAX_HEADER_BYTES:
        raise Malformed(f"a header of {length} bytes")
    return int(length)


def decode_header(text: bytes, *, max_bytes: int) -> tuple[dict[str, Any], int]:
    """The header and the number of array bytes that follow; Malformed when not acceptable."""
    try:
        header = json.loads(text)
        arrays = header["arrays"]
        size = 0
        for entry in arrays:
            dtype, shape = entry["dtype"], entry["shape"]
            if dtype not in DTYPES:
                raise Malformed(f"an array of dtype {dtype!r}")
            if not all(type(n) is int and n >= 0 for n in shape):
                raise Malformed(f"an array of shape {shape!r}")
            size += math.prod(shape) * np.dtype(dtype).itemsize
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Malformed("a header that is not what the protocol says") from None
    if size > max_bytes:
        raise Malformed(f"arrays of {size} bytes where at most {max_bytes} are allowed")
    return header, size


def decode_arrays(header: dict[str, Any], payload: bytes) -> list[Array]:
    """The arrays of a frame whose header `decode_header` accepted; they own writable memory."""
    arrays, offset = [], 0
    for entry in header["arrays"]:
        dtype = np.dtype(entry["dtype"])
        count = math.prod(entry["shape"])
        end = offset + count * dtype.itemsize
        flat = np.frombuffer(bytearray(payload[offset:end]), dtype) if count else np.empty(0, dtype)
        arrays.append(flat.reshape(entry["shape"]))
        offset = end
    return arrays
