"""From sampling parameters to a chain of the library's samplers. Knows what each parameter becomes, and in which order.

Suppressed tokens and bias, penalties, DRY, top_k, typical, top_p, min_p, temperature; neutral values add no stage.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass

from optaned.api import Sampling
from optaned_llamacpp.library import Library, address

_DRY_BREAKERS = (b"\n", b":", b'"', b"*")


@dataclass(frozen=True, slots=True)
class Setting:
    """What a chain needs to know of its model: vocabulary address, context length, tokens that may never be chosen."""

    vocabulary: int
    vocabulary_size: int
    context: int
    suppressed: tuple[int, ...] = ()


class Chain:
    """A chain of library samplers. `history` tokens prime its memory. `close` frees it."""

    def __init__(self, library: Library, stages: Sequence[int], *, remembers: bool) -> None:
        params = library.raw.llama_sampler_chain_default_params()
        params.no_perf = True
        self._library = library
        self.address = address(library.raw.llama_sampler_chain_init(params))
        self.remembers = remembers
        self._length = len(stages)
        self._has_last = False
        for stage in stages:
            library.chain_add(self.address, stage)

    def __len__(self) -> int:
        return self._length

    def end_with(self, sampler: int) -> None:
        """Make this sampler the last one, in place of the one set before."""
        library = self._library
        if self._has_last:
            library.free_sampler(library.chain_remove(self.address, self._length))
        library.chain_add(self.address, sampler)
        self._has_last = True

    def accept(self, token: int) -> None:
        if self.remembers:
            self._library.accept(self.address, token)

    def close(self) -> None:
        chain, self.address = self.address, 0
        if chain:
            self._library.free_sampler(chain)


def weighing_stages(library: Library, setting: Setting, sampling: Sampling) -> tuple[list[int], bool]:
    """Return the samplers that change logits, and whether any of them remembers what was chosen before."""
    stages, remembers = [], False
    bias = [(t, -math.inf) for t in setting.suppressed] + list(sampling.logit_bias)
    if bias:
        entries = (library.raw.llama_logit_bias * len(bias))(*bias)
        stages.append(library.raw.llama_sampler_init_logit_bias(setting.vocabulary_size, len(bias), entries))
    if _penalizes(sampling):
        last_n = setting.context if sampling.repeat_last_n < 0 else sampling.repeat_last_n
        values = (sampling.repeat_penalty, sampling.frequency_penalty, sampling.presence_penalty)
        stages.append(library.raw.llama_sampler_init_penalties(setting.vocabulary_size, last_n, *values))
        remembers = True
    if sampling.dry_multiplier > 0:
        stages.append(_dry(library, setting, sampling))
        remembers = True
    return [address(stage) for stage in stages], remembers


def narrowing_stages(library: Library, sampling: Sampling) -> list[int]:
    """Return the samplers that drop unlikely tokens and apply the temperature."""
    raw, stages = library.raw, []
    if sampling.top_k > 0:
        stages.append(raw.llama_sampler_init_top_k(sampling.top_k))
    if sampling.typical_p < 1:
        stages.append(raw.llama_sampler_init_typical(sampling.typical_p, 1))
    if sampling.top_p < 1:
        stages.append(raw.llama_sampler_init_top_p(sampling.top_p, 1))
    if sampling.min_p > 0:
        stages.append(raw.llama_sampler_init_min_p(sampling.min_p, 1))
    return [address(stage) for stage in [*stages, raw.llama_sampler_init_temp(sampling.temperature)]]


def temperature_stage(library: Library, sampling: Sampling) -> list[int]:
    """Return the temperature alone, for choosers that narrow by themselves (mirostat)."""
    return [address(library.raw.llama_sampler_init_temp(sampling.temperature))]


def _penalizes(sampling: Sampling) -> bool:
    neutral = (sampling.repeat_penalty, sampling.frequency_penalty, sampling.presence_penalty) == (1.0, 0.0, 0.0)
    return sampling.repeat_last_n != 0 and not neutral


def _dry(library: Library, setting: Setting, sampling: Sampling) -> object:
    breakers = (ctypes.c_char_p * len(_DRY_BREAKERS))(*_DRY_BREAKERS)
    last_n = setting.context if sampling.dry_penalty_last_n < 0 else sampling.dry_penalty_last_n
    return library.raw.llama_sampler_init_dry(
        setting.vocabulary,
        sampling.dry_multiplier,
        sampling.dry_base,
        sampling.dry_allowed_length,
        last_n,
        breakers,
        len(_DRY_BREAKERS),
    )
