"""The child process: `python -m optaned.engine.worker --fd N --parent PID`. Becomes an engine or a tokenizer.

It is told everything in its first frame, dies with its parent, and ends when the parent closes the socket. Knows no
configuration and no HTTP.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import logging
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from optaned.engine.desk import Desk
from optaned.engine.frames import FrameSocket
from optaned.engine.inbox import Inbox
from optaned.engine.joining import Joined
from optaned.engine.messages import (
    Cancel,
    EmbedTokens,
    Failed,
    Generate,
    Loading,
    Move,
    Open,
    Opened,
    Refused,
    Role,
    ToWorker,
    Trace,
)
from optaned.engine.opening import Opening
from optaned.engine.outbox import Outbox
from optaned.engine.scheduler import Scheduler
from optaned.engine.silence import SilenceStopper
from optaned.engine.steward import Steward
from optaned.engine.tracing import Tracing
from optaned.errors import OptanedError
from optaned.hooks.drivers import Backend, Model
from optaned.system.parent import OrphanError, die_with_parent

log = logging.getLogger("optaned.engine")

# An engine is what the kernel should end first when memory runs out: it is the largest, and it comes back.
_OOM_SCORE_ADJ = {Role.ENGINE: 500, Role.TOKENIZER: 100}

_PROGRESS_EVERY_S = 0.1
# What loading takes of the progress where bytes are promoted after it: either may be the longer part.
_LOAD_SHARE = 0.5

# K3's vocabulary takes some 200 MB. A template that wants more than this fails, or costs a tokenizer: a second's wait.
_TOKENIZER_DATA_MAX_BYTES = 4 << 30


def main(arguments: list[str] | None = None) -> int:
    """Be a worker until the parent closes the socket; return the exit status."""
    parser = argparse.ArgumentParser(prog="optaned.engine.worker", description="a child of the optaned server")
    parser.add_argument("--fd", type=int, required=True, help="socket to the parent")
    parser.add_argument("--parent", type=int, required=True, help="pid of the parent")
    given = parser.parse_args(arguments)
    _settle()
    try:
        die_with_parent(given.parent)
    except OrphanError as error:
        log.warning("%s", error)
        return 0
    frames = FrameSocket(socket.socket(fileno=given.fd))
    inbox = Inbox(frames)
    inbox.start()
    wanted = next(inbox.take(wait=True), None)
    if not isinstance(wanted, Open):
        return 0 if wanted is None else 64
    _offer_to_oom_killer(wanted.role)
    if wanted.role is Role.TOKENIZER:
        _bound_memory(_TOKENIZER_DATA_MAX_BYTES)
    try:
        return _serve(wanted, frames, inbox)
    except OptanedError as error:
        frames.send([Refused(error.lines, error.exit_code)])
        return error.exit_code
    except BrokenPipeError:
        # The parent closed its end in the middle of a step; nobody is left to tell.
        return 0


def _settle() -> None:
    """Make this process a quiet child: Ctrl-C is for the server, and a crash leaves a traceback but no core."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable()
    # Resident experts count as anonymous memory: a core would be hundreds of GiB. A limit of 1 is said to the kernel's
    # core pipe too, where 0 is not heard.
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    limit = 1 if hard == resource.RLIM_INFINITY or hard >= 1 else 0
    resource.setrlimit(resource.RLIMIT_CORE, (limit, limit))
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")


def _offer_to_oom_killer(role: Role) -> None:
    try:
        Path("/proc/self/oom_score_adj").write_text(f"{_OOM_SCORE_ADJ[role]}\n")
    except OSError as error:
        log.info("oom_score_adj stays as it is: %s", error)


def _bound_memory(size_bytes: int) -> None:
    """Refuse this process more memory of its own: what it renders comes from templates and clients."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = size_bytes if hard == resource.RLIM_INFINITY else min(size_bytes, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def _serve(wanted: Open, frames: FrameSocket, inbox: Inbox) -> int:
    with ExitStack() as stack:
        if wanted.word_path is not None and wanted.role is Role.ENGINE:
            # Before loading: reading 600 GB from hot DIMMs is as much heat as answering.
            stopper = SilenceStopper(Path(wanted.word_path))
            stopper.start()
            stack.callback(stopper.close)
        opening = Opening(wanted)
        backend = opening.backend()
        stack.callback(backend.close)
        if wanted.role is Role.TOKENIZER:
            vocabulary = opening.vocabulary(backend)
            stack.callback(vocabulary.close)
            chat_name, chat_format = opening.chat_format(vocabulary.info)
            frames.send([Opened(vocabulary.info, None, chat_name)])
            _answer_questions(Desk(vocabulary, chat_format), frames, inbox)
        else:
            joined = _open_model(wanted, opening, backend, frames, inbox, stack)
            frames.send([Opened(joined.model.vocabulary.info, joined.model.info, wanted.chat_format)])
            _generate(joined, frames, inbox)
    return 0


@dataclass(frozen=True)
class _Running:
    """A model that answers, and who looks after its bytes."""

    model: Model
    joined: Joined | None
    watched: bool = True


def _open_model(
    wanted: Open, opening: Opening, backend: Backend, frames: FrameSocket, inbox: Inbox, stack: ExitStack
) -> _Running:
    """Load the model and bring the planned bytes; both are closed by `stack`, the model last."""
    promotions = wanted.placement.promotions if wanted.placement is not None else ()
    progress = _Progress(frames, inbox)
    model = opening.model(backend, progress.part(0.0, _LOAD_SHARE if promotions else 1.0))
    stack.callback(model.close)
    joining = opening.joining(stack)
    if joining is None:
        return _Running(model, None)
    word_path = None if wanted.word_path is None else Path(wanted.word_path)
    joined = joining.join(model, frames.send, word_path=word_path, now_s=time.monotonic())
    stack.callback(joined.steward.close)
    joined.steward.settle(promotions, progress.part(_LOAD_SHARE, 1.0))
    joined.steward.start()
    inbox.aside = _to(joined.steward)
    return _Running(model, joined, watched=joined.watched)


def _to(steward: Steward) -> Callable[[ToWorker], bool]:
    def take(message: ToWorker) -> bool:
        if isinstance(message, Move):
            steward.ask(message)
            return True
        return False

    return take


class _Progress:
    """Tells the parent how far loading is, ten times a second at most; says stop once the parent is gone."""

    def __init__(self, frames: FrameSocket, inbox: Inbox) -> None:
        self._frames = frames
        self._inbox = inbox
        self._told_s = 0.0

    def part(self, begin: float, end: float) -> Callable[..., bool]:
        """Return the progress of a part that takes loading from `begin` to `end`; it is called with its own 0 to 1."""

        def tell(fraction: float, detail: str = "") -> bool:
            now_s = time.monotonic()
            if now_s - self._told_s >= _PROGRESS_EVERY_S:
                self._told_s = now_s
                self._frames.send([Loading(begin + (end - begin) * fraction, detail)])
            return not self._inbox.closed

        return tell


def _answer_questions(desk: Desk, frames: FrameSocket, inbox: Inbox) -> None:
    while not inbox.closed:
        for question in inbox.take(wait=True):
            answer = desk.answer(question)
            if answer is not None:
                frames.send([answer])


def _generate(running: _Running, frames: FrameSocket, inbox: Inbox) -> None:
    """Step until the parent closes. Frames of a step are sent with one call, before the next step (about 10 µs)."""
    watch = None if running.joined is None else running.joined.pace
    scheduler, outbox = Scheduler(running.model, is_cancelled=inbox.is_cancelled, watch=watch), Outbox()
    tracing = Tracing(running.model, watched=running.watched)
    # What was loaded stays; the collector need not look through it between tokens.
    gc.collect()
    gc.freeze()
    while not inbox.closed:
        for message in inbox.take(wait=not scheduler.busy):
            if isinstance(message, Generate | EmbedTokens):
                scheduler.submit(message)
            elif isinstance(message, Cancel):
                scheduler.cancel(message.id)
            elif isinstance(message, Trace):
                frames.send([tracing.switch(message)])
            elif isinstance(message, Move):
                frames.send([Failed(message.id, "move_refused", "this model was loaded without a placement plan")])
        told = outbox.pass_on(scheduler.step(), now_s=time.monotonic(), more=scheduler.only_decodes)
        if told:
            frames.send(told)
        if tracing.on:
            frames.send(tracing.take())


if __name__ == "__main__":
    sys.exit(main())
