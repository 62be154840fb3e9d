"""Choose the next token of one answer. Knows parameters, positions and grammars; knows no slot and no scheduling.

Every random number is derived from (seed, position): the same logits at the same position give the same token, whatever
was sampled before, so that a resumed answer goes on as it would have. The final `dist` sampler is made anew for each
token: 5 µs with its draw from 40 candidates, where a draw in numpy takes 8, and no further call as it ends the chain.

A grammar is asked about the token that would be chosen without it (20 to 80 µs); only when it refuses is the whole
vocabulary masked (5.5 ms for 49,152 tokens).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from optaned.api import GrammarError, Sampled, Sampling, TokenLogprob
from optaned_llamacpp.candidates import Candidates, Logits, Outputs
from optaned_llamacpp.chain import Chain, Setting, narrowing_stages, temperature_stage, weighing_stages
from optaned_llamacpp.grammar import Grammar
from optaned_llamacpp.library import Library, address
from optaned_llamacpp.mirostat import Mirostat

_MASK64 = (1 << 64) - 1
_LOG = logging.getLogger("optaned.llamacpp")


def mix(seed: int, position: int) -> int:
    """Return 64 well-mixed bits of (seed, position): splitmix64's output function over their sum."""
    z = (seed * 0xD1342543DE82EF95 + (position + 1) * 0x9E3779B97F4A7C15) & _MASK64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK64
    return z ^ (z >> 31)


class Chooser(Protocol):
    """One way to choose. `choose` takes the raw row; `choose_among` takes what a grammar left; neither remembers it."""

    def choose(self, output: int, bits: int) -> int: ...

    def choose_among(self, candidates: Candidates, bits: int) -> int: ...

    def accept(self, token: int) -> None: ...

    def close(self) -> None: ...


class Greedy:
    """The likeliest token, without any stage before it."""

    def __init__(self, outputs: Outputs) -> None:
        self._outputs = outputs

    def choose(self, output: int, bits: int) -> int:  # noqa: ARG002  greedy needs no luck
        return int(self._outputs.logits(output).argmax())

    def choose_among(self, candidates: Candidates, bits: int) -> int:  # noqa: ARG002
        rows = candidates.rows
        return int(rows["id"][rows["logit"].argmax()])

    def accept(self, token: int) -> None: ...

    def close(self) -> None: ...


class Chained:
    """A chain of library samplers that ends in a greedy or a random choice."""

    def __init__(
        self, library: Library, chain: Chain, outputs: Outputs, candidates: Candidates, *, greedy: bool
    ) -> None:
        self._library = library
        self._chain = chain
        self._outputs = outputs
        self._candidates = candidates
        self._greedy = greedy
        if greedy:
            chain.end_with(address(library.raw.llama_sampler_init_greedy()))

    def choose(self, output: int, bits: int) -> int:
        self._candidates.fill(self._outputs.logits(output))
        return self.choose_among(self._candidates, bits)

    def choose_and_accept(self, output: int, bits: int) -> int:
        """Choose and remember in one call of the library."""
        self._draw_with(bits)
        outputs = self._outputs
        token: int = self._library.sample(self._chain.address, outputs.context, outputs.index(output))
        return token

    def choose_among(self, candidates: Candidates, bits: int) -> int:
        self._draw_with(bits)
        candidates.apply(self._chain.address)
        return candidates.selected

    def _draw_with(self, bits: int) -> None:
        if not self._greedy:
            # 0xFFFFFFFF would ask the library for a seed of its own choice.
            self._chain.end_with(self._library.new_dist(bits % 0xFFFFFFFF))

    def accept(self, token: int) -> None:
        self._chain.accept(token)

    def close(self) -> None:
        self._chain.close()


class Surprised:
    """Mirostat behind the stages that weigh."""

    def __init__(self, chain: Chain, mirostat: Mirostat, outputs: Outputs, candidates: Candidates) -> None:
        self._chain = chain
        self._mirostat = mirostat
        self._outputs = outputs
        self._candidates = candidates
        self._surprise = 0.0

    def choose(self, output: int, bits: int) -> int:
        self._candidates.fill(self._outputs.logits(output))
        return self.choose_among(self._candidates, bits)

    def choose_among(self, candidates: Candidates, bits: int) -> int:
        candidates.apply(self._chain.address)
        candidates.drop_impossible()
        rows = candidates.rows
        index, self._surprise = self._mirostat.choose(rows["logit"].copy(), (bits >> 11) / (1 << 53))
        return int(rows["id"][index])

    def accept(self, token: int) -> None:
        self._mirostat.learn(self._surprise)
        self._chain.accept(token)

    def close(self) -> None:
        self._chain.close()


class LlamaSampler:
    """The sampler of one answer: a chooser, an optional grammar, and log-probabilities when asked."""

    def __init__(
        self,
        chooser: Chooser,
        outputs: Outputs,
        candidates: Candidates,
        *,
        seed: int,
        end: int,
        grammar: Grammar | None,
    ) -> None:
        self._chooser = chooser
        self._outputs = outputs
        self._candidates = candidates
        self._seed = seed
        self._end = end
        self._grammar = grammar
        self._ended = False
        self._fast = getattr(chooser, "choose_and_accept", None) if grammar is None else None

    def sample(self, output: int, *, position: int, top_logprobs: int | None) -> Sampled:
        """Choose from output row `output`, accept the choice and return it; see `optaned.api.Sampler`."""
        bits = mix(self._seed, position)
        if self._fast is not None:
            token = self._fast(output, bits)
        elif self._grammar is None:
            token = self._chooser.choose(output, bits)
            self._chooser.accept(token)
        else:
            token = self._obey(self._grammar, output, bits)
        if top_logprobs is None:
            return Sampled(token)
        return Sampled(token, logprob_of(self._outputs.logits(output), token, top_logprobs))

    def _obey(self, grammar: Grammar, output: int, bits: int) -> int:
        if self._ended:
            return self._end
        token = self._chooser.choose(output, bits)
        if not grammar.allows(token, self._candidates):
            self._candidates.fill(self._outputs.logits(output))
            if grammar.mask(self._candidates) == 0:
                # No token of this vocabulary continues the sentence; ending is the only thing left to say.
                _LOG.warning("grammar allows no token of the vocabulary; the answer ends here")
                self._ended = True
                return self._end
            token = self._chooser.choose_among(self._candidates, bits)
            if not grammar.allows(token, self._candidates):
                self._ended = True
                return self._end
        grammar.accept(token)
        self._chooser.accept(token)
        self._ended = token == self._end
        return token

    def prime(self, history: Sequence[int], answered: int) -> None:
        """Let penalties see all of `history` and the grammar its last `answered` tokens. Raises GrammarError."""
        for token in history:
            self._chooser.accept(token)
        if self._grammar is None:
            return
        for token in history[len(history) - answered :]:
            if not self._grammar.allows(token, self._candidates):
                raise GrammarError("grammar: the answer so far does not follow it")
            self._grammar.accept(token)

    def close(self) -> None:
        """Free the library's samplers; closing twice is nothing."""
        self._chooser.close()
        if self._grammar is not None:
            self._grammar.close()


def open_chooser(
    library: Library, setting: Setting, sampling: Sampling, outputs: Outputs, candidates: Candidates
) -> tuple[Chooser, bool]:
    """Return the cheapest chooser for these parameters, and whether it must be primed with the history."""
    greedy = sampling.temperature <= 0
    stages, remembers = weighing_stages(library, setting, sampling)
    if greedy and not stages:
        return Greedy(outputs), False
    if not greedy:
        stages += temperature_stage(library, sampling) if sampling.mirostat else narrowing_stages(library, sampling)
    chain = Chain(library, stages, remembers=remembers)
    if sampling.mirostat and not greedy:
        mirostat = Mirostat(sampling.mirostat, sampling.mirostat_tau, sampling.mirostat_eta)
        return Surprised(chain, mirostat, outputs, candidates), remembers
    return Chained(library, chain, outputs, candidates, greedy=greedy), remembers


def logprob_of(logits: Logits, token: int, top: int) -> TokenLogprob:
    """Return the token's log-probability under the model's own distribution, with the `top` likeliest, best first."""
    wide = logits.astype(np.float64)
    wide -= wide.max()
    normal = wide - np.log(np.exp(wide).sum())
    count = min(top, len(normal))
    if count == 0:
        return TokenLogprob(token, float(normal[token]))
    best = np.argpartition(-normal, count - 1)[:count]
    best = best[np.argsort(-normal[best], kind="stable")]
    return TokenLogprob(token, float(normal[token]), tuple((int(t), float(normal[t])) for t in best))
