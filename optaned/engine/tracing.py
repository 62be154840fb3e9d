"""The router's choices on their way up while somebody listens: switched on and off, cut into frames. Knows no socket."""

from __future__ import annotations

from collections.abc import Sequence

from optaned.engine.messages import Choices, Failed, FromWorker, Text, Trace
from optaned.hooks.drivers import Model, RouterChoice, Tapped

Chosen = tuple[int, tuple[int, ...]]

# About 100 kB a frame: a prefill of 512 tokens through 92 layers is 47,000 choices, which others should not wait for.
CHOICES_A_FRAME = 4096


class Tracing:
    """One model's trace. By the model's owner, between steps. `watched` False: the backend was asked not to look."""

    def __init__(self, model: Model, *, watched: bool = True) -> None:
        self._tapped = model if watched and isinstance(model, Tapped) else None
        self.on = False

    def switch(self, wanted: Trace) -> FromWorker:
        """Begin or end; return the answer."""
        if self._tapped is None:
            text = (
                "this model's router is not watched: it has no experts, or its policy moves none; see placement.policy"
            )
            return Failed(wanted.id, "trace_unsupported", text)
        self._tapped.trace(on=wanted.on)
        self.on = wanted.on
        return Text(wanted.id, "tracing" if wanted.on else "not tracing")

    def take(self) -> list[FromWorker]:
        """Return what was chosen since the last time, token after token."""
        frames: list[FromWorker] = []
        held: list[Chosen] = []
        for token in by_token(() if self._tapped is None else self._tapped.take_choices()):
            held += token
            if len(held) >= CHOICES_A_FRAME:
                frames.append(Choices(tuple(held)))
                held = []
        return [*frames, Choices(tuple(held))] if held else frames


def by_token(choices: Sequence[RouterChoice]) -> list[list[Chosen]]:
    """Return each token's choices, its layers in order, whichever way the backend lists them.

    A library evaluates layer by layer: of the choices of one layer, the n-th is the n-th token's. Of a prompt it computes
    the last layer only for the tokens that are read out, the last ones; the others are left out.
    """
    layers: dict[int, list[tuple[int, ...]]] = {}
    for choice in choices:
        layers.setdefault(choice.layer, []).append(choice.experts)
    count = min(map(len, layers.values()), default=0)
    return [[(layer, layers[layer][at]) for layer in sorted(layers)] for at in range(-count, 0)]
