"""The output rows of the last decode, and the candidate array that samplers narrow. Knows neither request nor grammar.

One array serves every sampler of a model: sampling is never re-entered, and 160,000 candidates are 2 MB.
"""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt

from optaned_llamacpp.library import Library

Logits = npt.NDArray[np.float32]
_CANDIDATE = np.dtype([("id", "<i4"), ("logit", "<f4"), ("p", "<f4")])


class Outputs:
    """Where the output rows of the last decode are: row number → index in its batch → logits."""

    def __init__(self, library: Library, context: int, vocabulary_size: int) -> None:
        self._library = library
        self.context = context
        self.size = vocabulary_size
        self.indices: list[int] = []
        self._views: dict[int, Logits] = {}

    def index(self, output: int) -> int:
        """Return the batch index of an output row. Raises IndexError when the last decode has no such row."""
        return self.indices[output]

    def logits(self, output: int) -> Logits:
        """Return the raw logits of an output row: the library's own memory, valid until the next decode."""
        place = self._library.logits_row(self.context, self.indices[output])
        if not place:
            raise IndexError(f"output row {output} has no logits")
        view = self._views.get(place)
        if view is None:
            memory = (ctypes.c_float * self.size).from_address(place)
            view = self._views[place] = np.ctypeslib.as_array(memory)
        return view

    def replace(self, indices: list[int]) -> None:
        """Forget the rows of the decode before; the library may have moved its buffer."""
        self.indices = indices
        if len(self._views) > 4 * len(indices) + 16:
            self._views.clear()


class Candidates:
    """Tokens with their logits, in the layout that library samplers read and write."""

    def __init__(self, library: Library, size: int) -> None:
        self._library = library
        self._rows = np.zeros(size, dtype=_CANDIDATE)
        self._ids = np.arange(size, dtype=np.int32)
        self._struct = library.raw.llama_token_data_array()
        self._pointer = ctypes.addressof(self._struct)

    @property
    def rows(self) -> npt.NDArray[np.void]:
        """The candidates that are left: fields `id`, `logit` and `p`."""
        return self._rows[: self._struct.size]

    @property
    def selected(self) -> int:
        """The token that the last sampler selected."""
        return int(self._rows["id"][self._struct.selected])

    def fill(self, logits: Logits) -> None:
        """Start again from raw logits: every token of the vocabulary."""
        self._rows["id"] = self._ids
        self._rows["logit"] = logits
        self._reset(len(self._ids))

    def fill_one(self, token: int) -> None:
        """Hold a single token, to ask a sampler about it."""
        self._rows[0] = (token, 1.0, 0.0)
        self._reset(1)

    def drop_impossible(self) -> int:
        """Remove what has a logit of minus infinity and return how many are left.

        Library samplers compute 0 · log 0 on such rows (`typical` sorts by it), so they must never see one.
        """
        rows = self.rows
        left = rows[rows["logit"] > -np.inf]
        self._rows[: len(left)] = left
        self._reset(len(left))
        return len(left)

    def apply(self, sampler: int) -> None:
        self._library.apply(sampler, self._pointer)

    def _reset(self, size: int) -> None:
        struct = self._struct
        struct.data = ctypes.cast(self._rows.ctypes.data, type(struct.data))
        struct.size = size
        struct.selected = -1
        struct.sorted = False
