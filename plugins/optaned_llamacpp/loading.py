"""Open a GGUF as the library's model, or say in one line why it cannot be: which file, what was said, what next.

Knows the load parameters and the library's words for failure. Knows no context, no slot and no token.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from optaned.api import MissingFileError, ModelFileError, Offload, OptanedError, UnavailableError
from optaned_llamacpp.library import Library, address

_MMAP = 1
_UPGRADE = "pip install -U 'optaned[llama]'"
# What a library says of a file that is newer than itself.
_TOO_OLD = re.compile(
    r"(?P<what>unknown model architecture|unknown pre-tokenizer type|unknown tokenizer|unsupported model type"
    r"|invalid ggml type|unknown type)(?P<which>.*)"
)
# What it and the C library say where memory ran out: the file is not to blame.
_NO_MEMORY = re.compile(
    r"cannot allocate memory|unable to allocate|failed to allocate|insufficient memory", re.IGNORECASE
)
_PREFIX = re.compile(r"^(?:[A-Za-z_0-9]+: )?(?:error loading model: )?(?:error loading model [a-z]+: )?")


def open_model(
    library: Library,
    files: Sequence[Path],
    *,
    vocab_only: bool = False,
    progress: Callable[[float], bool] | None = None,
    offload: Sequence[Offload] = (),
) -> int:
    """Return the address of a loaded model; weights are mapped from the files, and copied only to a device.

    An architecture or tensor type that the library does not know is refused by the header, before a weight is read.
    Raises MissingFileError, ModelFileError or UnavailableError; whatever `progress` raises is raised again here.
    """
    for file in files:
        if not file.is_file():
            raise MissingFileError(f"{file}: no such file; check the model's `files`")
    params = library.raw.llama_model_default_params()
    params.load_mode = _MMAP
    params.use_extra_bufts = False  # repacked copies would live in DRAM, out of reach of the page moves
    params.vocab_only = vocab_only
    placed = library.devices.place(params, offload)
    reporter = _Reporter(progress)
    callback = library.raw.llama_progress_callback(reporter)
    params.progress_callback = callback
    paths = (ctypes.c_char_p * len(files))(*(str(file).encode() for file in files))
    with library.log.listen() as heard:
        if len(files) == 1:
            model = address(library.raw.llama_model_load_from_file(paths[0], params))
        else:
            model = address(library.raw.llama_model_load_from_splits(paths, len(files), params))
    del placed  # the library has read its arrays
    if reporter.error is not None:
        raise reporter.error
    if model:
        return model
    if reporter.gave_up:
        raise UnavailableError(f"{files[0]}: loading was given up on request")
    raise explain(library, files[0], heard)


def explain(library: Library, file: Path, lines: Iterable[str]) -> OptanedError:
    """Return the error that the library's own lines amount to."""
    said = [_PREFIX.sub("", line) for line in lines]
    for line in said:
        if newer := _TOO_OLD.search(line):
            what = newer["what"] + newer["which"].rstrip(" .")
            return UnavailableError(f"{file}: {what}; {library.version} is too old for this model: {_UPGRADE}")
    reason = next((line for line in said if line), "no reason given")
    if _NO_MEMORY.search(reason):
        hint = "free memory, or lift the limit that holds this process (ulimit -v, MemoryMax=)"
        return UnavailableError(f"{file}: cannot be loaded: {reason.rstrip('.')}; {hint}")
    return ModelFileError(f"{file}: cannot be loaded: {reason.rstrip('.')}; check the file (truncated download?)")


class _Reporter:
    """The progress callback: an exception must not be lost in C, so it is kept and stops the load."""

    def __init__(self, progress: Callable[[float], bool] | None) -> None:
        self._progress = progress
        self.error: Exception | None = None
        self.gave_up = False

    def __call__(self, fraction: float, _data: object) -> bool:
        if self._progress is None:
            return True
        try:
            self.gave_up = not self._progress(fraction)
        except Exception as error:  # noqa: BLE001  raised again by open_model
            self.error = error
            return False
        return not self.gave_up
