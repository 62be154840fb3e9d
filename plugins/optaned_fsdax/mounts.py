"""What is mounted where, from the kernel's mountinfo. Knows its format; judges nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from optaned.api import Env, UnavailableError

_MOUNTINFO = "/proc/self/mountinfo"
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class Mount:
    """A mounted file system: where, of which type, from what, with the options of mount and super block."""

    point: Path
    type: str
    source: str
    options: tuple[str, ...]

    @property
    def device(self) -> str | None:
        """Return the block device's name, such as "pmem0"; None where the source is no device."""
        return self.source.removeprefix("/dev/") if self.source.startswith("/dev/") else None


def mount_of(env: Env, folder: Path) -> Mount:
    """Return what is mounted at a folder or above it; of several mounts at one point, the last. Raises UnavailableError."""
    path = env.path(_MOUNTINFO)
    try:
        lines = path.read_text(errors="surrogateescape").splitlines()
    except OSError as error:
        raise UnavailableError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from None
    mounts = [mount for mount in map(_parse, lines) if mount is not None and folder.is_relative_to(mount.point)]
    if not mounts:
        raise UnavailableError(f"{folder}: no mount holds it; is /proc mounted?")
    deepest = max(len(mount.point.parts) for mount in mounts)
    return [mount for mount in mounts if len(mount.point.parts) == deepest][-1]


def _parse(line: str) -> Mount | None:
    # 36 35 98:0 /root /point rw,noatime shared:1 - ext4 /dev/pmem0 rw,dax=always
    front, separator, back = line.partition(" - ")
    fields, kinds = front.split(" "), back.split(" ")
    if not separator or len(fields) < 6 or len(kinds) < 3:
        return None
    options = (*fields[5].split(","), *kinds[2].split(","))
    return Mount(Path(_plain(fields[4])), kinds[0], _plain(kinds[1]), options)


def _plain(text: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)
