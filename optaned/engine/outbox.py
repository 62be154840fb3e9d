"""When a step's pieces go up: at once when steps are slow, about thirty times a second when they are fast.

Pure: knows messages and the times it is given, no socket. Each event that reaches a client costs server and SDK some
1.5 ms of a core that the model could compute on (measured: a stream of 150 tokens/s lost a tenth to it), and nobody reads
faster than thirty changes a second. A model that takes longer than `window_s` a step is never held back.
"""

from __future__ import annotations

from optaned.engine.messages import FromWorker, Piece, Pieces

WINDOW_S = 1 / 30


class Outbox:
    """Holds pieces for less than `window_s`; everything else goes at once and takes them along, in order."""

    def __init__(self, *, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._held: dict[str, Piece] = {}
        self._sent_s = float("-inf")
        self._stepped_s = float("-inf")

    def pass_on(self, told: list[FromWorker], *, now_s: float, more: bool) -> list[FromWorker]:
        """Return what to send now, after a step that told this. `more`: the next step decodes again, at once."""
        step_s, self._stepped_s = now_s - self._stepped_s, now_s
        out: list[FromWorker] = []
        for message in told:
            if isinstance(message, Pieces):
                self._hold(message)
            else:
                out += self._release()
                out.append(message)
        # The next chance to send is a step away: what would be late by then goes now.
        if not more or out or now_s + step_s - self._sent_s > self._window_s:
            out += self._release()
        if out:
            self._sent_s = now_s
        return out

    def _hold(self, pieces: Pieces) -> None:
        for piece in pieces.pieces:
            held = self._held.get(piece.id)
            self._held[piece.id] = piece if held is None else joined(held, piece)

    def _release(self) -> list[FromWorker]:
        held, self._held = self._held, {}
        return [Pieces(tuple(held.values()))] if held else []


def joined(first: Piece, second: Piece) -> Piece:
    """Return two pieces of one answer as one."""
    return Piece(first.id, first.tokens + second.tokens, first.text + second.text, first.logprobs + second.logprobs)
