"""Pack the records of runs into one file that travels: the same bytes for the same records."""

from __future__ import annotations

import zipfile
from pathlib import Path

from lab.records import RESULT_FILE, STATUS_FILE

# The earliest date a zip file can hold: when it was packed says nothing.
_NO_DATE = (1980, 1, 1, 0, 0, 0)


def pack(folder: Path, out: Path) -> int:
    """Write every status and result below `folder` into the zip file `out`; returns how many.

    Not those in `folder` itself: they are of the run that packs, which is not done yet.
    """
    names = (RESULT_FILE, STATUS_FILE)
    found = sorted(p for name in names for p in folder.rglob(name) if p.parent != folder)
    temporary = out.with_name(f".{out.name}.tmp")
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in found:
            member = zipfile.ZipInfo(path.relative_to(folder).as_posix(), _NO_DATE)
            member.compress_type = zipfile.ZIP_DEFLATED
            member.external_attr = 0o100644 << 16
            packed.writestr(member, path.read_bytes())
    temporary.replace(out)
    return len(found)
