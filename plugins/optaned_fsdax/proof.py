"""Whether a mount is really DAX, or why not, with the command that helps.

A mount option says what was asked for, statx of a file what came of it: both have to agree, since a file that is not DAX is
read through the page cache and takes the DRAM that it should save.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

from optaned.api import Env, UnavailableError
from optaned_fsdax.mounts import Mount

IsDax = Callable[[Path], bool | None]
# Both know DAX; the options that they show are the same.
_TYPES = ("ext4", "xfs")
_ALWAYS, _NEVER = ("dax", "dax=always"), ("dax=never",)
_WHY_NOT = (
    "dax=always needs a namespace of mode fsdax and blocks of a page: see `ndctl list -N` and `dmesg | grep -i dax`"
)
_MOST_FILES = 1000


def prove(mount: Mount, asked: Path, env: Env, is_dax: IsDax) -> str:
    """Return what proves that files below the folder `asked` are DAX. Raises UnavailableError with reason and next step.

    A file's own word proves it for any device (PMem may lie under LVM); without one, device and mount option have to.
    """
    answers = [(file, _ask(is_dax, file)) for file in itertools.islice(_files(env.path(asked)), _MOST_FILES)]
    said_no = [file for file, answer in answers if answer is False]
    if not said_no and any(answer for _, answer in answers):
        return f"DAX: statx says so of {len(answers)} files"
    if fault := _fault_of_device(mount, env) or _fault_of_options(mount):
        raise UnavailableError(f"{asked}: {fault}")
    always = any(option in _ALWAYS for option in mount.options)
    remount = f"umount {mount.point} && mount -o dax=always {mount.source} {mount.point}"
    if said_no:
        raise UnavailableError(f"{said_no[0]}: is not mapped by DAX; {_WHY_NOT if always else f'run `{remount}`'}")
    if not always:
        why = "and this kernel does not tell of files" if answers else "and no file is there to ask"
        raise UnavailableError(f"{asked}: is mounted without dax=always, {why}; run `{remount}`")
    return "DAX: by mount option" if answers else "DAX: by mount option; no file there to ask"


def _fault_of_options(mount: Mount) -> str | None:
    if mount.type not in _TYPES:
        return f"{mount.type} has no DAX; make it ext4 or xfs: mkfs.ext4 {mount.source}"
    if any(option in _NEVER for option in mount.options):
        return (
            f"is mounted with dax=never; run `umount {mount.point} && mount -o dax=always {mount.source} {mount.point}`"
        )
    return None


def _fault_of_device(mount: Mount, env: Env) -> str | None:
    device = mount.device
    if device is None or not device.startswith("pmem"):
        return f'lies on {mount.source}, which is no PMem; set driver = "file", or mount /dev/pmemN there'
    if device.endswith("s") or _read(env, f"/sys/block/{device}/queue/dax") == "0":
        return (
            f"{mount.source} cannot do DAX (sector or raw mode); save its files, then run "
            "`ndctl create-namespace --force --reconfig=NAMESPACE --mode=fsdax` (`ndctl list -N` names it)"
        )
    return None


def _files(folder: Path) -> Iterator[Path]:
    """Yield model files; where there is none yet, any file."""
    found = False
    for file in sorted(folder.rglob("*.gguf")):
        if file.is_file() and not file.is_symlink() and file.stat().st_size:
            found = True
            yield file
    if not found:
        others = (f for f in folder.iterdir() if f.is_file() and not f.is_symlink() and f.stat().st_size)
        yield from itertools.islice(others, 1)


def _ask(is_dax: IsDax, file: Path) -> bool | None:
    try:
        return is_dax(file)
    except OSError as error:
        raise UnavailableError(f"{file}: cannot be asked: {(error.strerror or str(error)).lower()}") from None


def _read(env: Env, path: str) -> str:
    try:
        return env.path(path).read_text().strip()
    except OSError:
        return ""
