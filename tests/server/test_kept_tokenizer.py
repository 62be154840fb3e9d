"""A tokenizer that hangs: questions end, and the next one answers."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from optaned.engine.keeper import Patience
from optaned.engine.messages import Open, Role
from optaned.server.kept_tokenizer import KeptTokenizer
from optaned.server.ports import Failure

ECHO = Open(
    role=Role.TOKENIZER,
    backend="echo",
    options={},
    files=(),
    context=100,
    slots=1,
    threads=1,
    batch=64,
    kv_cache="f16",
)


def test_a_tokenizer_that_hangs_is_replaced() -> None:
    async def story() -> None:
        lost: list[str] = []
        opened = asyncio.Event()
        tokenizer = KeptTokenizer(
            changed=opened.set, lost=lost.append, patience=Patience(first_delay_s=0.0), answer_within_s=0.3
        )
        tokenizer.start(ECHO)
        await opened.wait()
        hung = tokenizer.pid or 0
        os.kill(hung, signal.SIGSTOP)
        with pytest.raises(Failure, match="tokenizer") as failed:
            await asyncio.wait_for(tokenizer.tokenize("a", special=False, bos=False), 20)
        assert failed.value.code == "engine_died"
        assert (await tokenizer.tokenize("a", special=False, bos=False)).tokens == (97,)
        assert tokenizer.pid != hung
        assert lost == []
        keeper = tokenizer.retire(Failure("model_not_loaded", "the test is over"))
        assert keeper is not None
        await keeper.stop()

    asyncio.run(story())
