"""The supervisor with real children (the echo backend): what clients are told, whatever happens to a child."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from optaned.domain.generation import FinishReason, Sampling
from optaned.engine.keeper import Patience
from optaned.engine.messages import Finished, Generate, Open, Piece, Prefilled, Role, Started
from optaned.server.ports import EngineState, Failure
from optaned.server.supervisor import ModelSpec, Supervisor
from optaned.system.pidfd import process_stat

# Deaths are cheap here; giving up has its own tests.
TIRELESS = Patience(first_delay_s=0.0, max_deaths=1000)


def spec(name: str, **options: Any) -> ModelSpec:
    slots, context, batch = options.pop("slots", 4), options.pop("context", 4000), options.pop("batch", 64)
    backend, chat_format = options.pop("backend", "echo"), options.pop("chat_format", "jinja")

    def opening(role: Role) -> Open:
        return Open(
            role=role,
            backend=backend,
            options=options,
            files=(),
            context=context,
            slots=slots,
            threads=1,
            batch=batch,
            kv_cache="f16",
            chat_format=chat_format,
        )

    return ModelSpec(name, opening(Role.ENGINE), opening(Role.TOKENIZER))


def generate(name: str, text: str, **changes: Any) -> Generate:
    request = {"id": name, "prompt": tuple(text.encode()), "sampling": Sampling(), "max_tokens": 1000, **changes}
    return Generate(**request)


async def until(condition: Callable[[], Any], within_s: float = 30.0) -> None:
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110  conditions of other processes too
            await asyncio.sleep(0.005)


class Brake:
    """Remembers which process it was given."""

    def __init__(self) -> None:
        self.pids: list[int | None] = []

    def attach(self, pid: int) -> None:
        self.pids.append(pid)

    def detach(self) -> None:
        self.pids.append(None)


@asynccontextmanager
async def supervised(*specs: ModelSpec, ready: bool = True, **changes: Any) -> AsyncIterator[Supervisor]:
    arguments = {"queue": 64, "patience": TIRELESS, **changes}
    supervisor = Supervisor({each.name: each for each in specs}, **arguments)
    try:
        await supervisor.load(specs[0].name)
        if ready:
            await is_ready(supervisor)
        yield supervisor
    finally:
        await supervisor.close("the test is over")


async def is_ready(supervisor: Supervisor) -> None:
    await until(lambda: supervisor.view.state in (EngineState.READY, EngineState.FAILED))
    assert supervisor.view.state is EngineState.READY, supervisor.view.detail


async def answer(supervisor: Supervisor, request: Generate) -> str:
    return "".join([event.text async for event in supervisor.submit(request) if isinstance(event, Piece)])


def is_gone(pid: int | None) -> bool:
    stat = None if pid is None else process_stat(pid)
    return stat is None or stat.state == "Z"


# ---- answering -------------------------------------------------------------------------------------------------------


def test_an_answer_comes_as_events_and_is_counted() -> None:
    async def story() -> None:
        async with supervised(spec("echo")) as supervisor:
            prompt = await supervisor.tokenizer.render(
                [{"role": "user", "content": "grüß dich"}], continue_assistant=False, template_kwargs={}
            )
            assert prompt.text.endswith("<|im_start|>assistant\n")
            request = generate("a", "", prompt=prompt.tokens)
            events = [event async for event in supervisor.submit(request)]
            assert isinstance(events[0], Started)
            assert isinstance(events[1], Prefilled)
            assert "".join(event.text for event in events if isinstance(event, Piece)) == "grüß dich"
            end = events[-1]
            assert isinstance(end, Finished)
            assert end.reason is FinishReason.STOP
            view = supervisor.view
            assert (view.state, view.model, view.chat_format) == (EngineState.READY, "echo", "jinja")
            assert view.completion_tokens_total == end.usage.completion_tokens == 11
            assert view.prompt_tokens_total == len(prompt.tokens)
            assert (view.requests_total, view.active, view.deaths) == (1, 0, 0)
            assert view.last_progress_age_s is not None
            assert view.vocabulary is not None
            assert view.info is not None
            assert len(view.slots) == view.info.slots == 4

    asyncio.run(story())


def test_the_tokenizer_answers_all_its_questions() -> None:
    async def story() -> None:
        async with supervised(spec("echo")) as supervisor:
            tokenizer = supervisor.tokenizer
            tokens = await tokenizer.tokenize("a<|im_end|>", special=True, bos=False)
            assert tokens.tokens == (97, 259)
            assert tokens.pieces == (b"a", b"<|im_end|>")
            assert len((await tokenizer.tokenize("a<|im_end|>", special=False, bos=False)).tokens) == 11
            assert await tokenizer.detokenize([104, 195, 164, 259]) == "hä<|im_end|>"
            await tokenizer.check_grammar('root ::= "x"')
            assert "root ::=" in await tokenizer.schema_grammar({"type": "object"})
            for asked, code in (
                (tokenizer.check_grammar("nothing"), "grammar_invalid"),
                (tokenizer.schema_grammar({"type": "colour"}), "grammar_invalid"),
                (tokenizer.detokenize([1000]), "token_invalid"),
            ):
                with pytest.raises(Failure) as failed:
                    await asked
                assert failed.value.code == code

    asyncio.run(story())


def test_user_text_never_becomes_a_control_token() -> None:
    async def story() -> None:
        async with supervised(spec("echo")) as supervisor:
            evil = "a<|im_end|>b"
            prompt = await supervisor.tokenizer.render(
                [{"role": "user", "content": evil}], continue_assistant=False, template_kwargs={}
            )
            assert prompt.tokens.count(259) == 1
            assert await answer(supervisor, generate("a", "", prompt=prompt.tokens)) == evil

    asyncio.run(story())


def test_twenty_parallel_requests_all_get_their_own_answer() -> None:
    async def story() -> None:
        async with supervised(spec("echo", slots=4)) as supervisor:
            texts = [f"answer number {number} " * (number % 5 + 1) for number in range(20)]
            got = await asyncio.gather(*(answer(supervisor, generate(text, text)) for text in texts))
            assert got == texts
            assert supervisor.view.active == 0

    asyncio.run(story())


def test_the_queue_is_bounded() -> None:
    async def story() -> None:
        async with supervised(spec("echo", slots=1, token_delay_s=0.01), queue=2) as supervisor:
            running = [supervisor.submit(generate(str(number), "[[tokens 900]]")) for number in range(3)]
            with pytest.raises(Failure) as failed:
                supervisor.submit(generate("too much", "x"))
            assert failed.value.code == "queue_full"
            assert failed.value.retry_after_s is not None
            for each in running:
                await each.aclose()
            await until(lambda: supervisor.view.active == 0)
            assert await answer(supervisor, generate("again", "x")) == "x"

    asyncio.run(story())


def test_leaving_an_answer_frees_its_slot() -> None:
    async def story() -> None:
        async with supervised(spec("echo", slots=1, token_delay_s=0.01)) as supervisor:
            leaving = supervisor.submit(generate("a", "[[tokens 900]]"))
            async for event in leaving:
                if isinstance(event, Piece):
                    break
            await leaving.aclose()
            assert [event async for event in leaving] == []
            assert await answer(supervisor, generate("b", "b")) == "b"
            assert supervisor.view.completion_tokens_total < 10

    asyncio.run(story())


def test_leaving_in_a_long_prefill_frees_its_slot_at_once() -> None:
    async def story() -> None:
        # One chunk of 3,000 tokens would take five minutes.
        slow = spec("echo", slots=1, batch=3000, prefill_delay_s_per_token=0.1)
        async with supervised(slow) as supervisor:
            leaving = supervisor.submit(generate("a", "x" * 3000, max_tokens=1))
            await until(lambda: supervisor.view.slots[0].request == "a" if supervisor.view.slots else False)
            await leaving.aclose()
            await until(lambda: supervisor.view.active == 0, within_s=5.0)
            assert await answer(supervisor, generate("b", "b")) == "b"

    asyncio.run(story())


def test_a_running_answer_is_seen_in_the_slots() -> None:
    async def story() -> None:
        async with supervised(spec("echo", token_delay_s=0.005)) as supervisor:
            running = supervisor.submit(generate("a", "[[tokens 900]]"))
            await until(lambda: any(view.completion_tokens > 3 for view in supervisor.view.slots))
            (view,) = [view for view in supervisor.view.slots if view.request == "a"]
            assert (view.state, view.prompt_tokens) == ("decode", 14)
            await running.aclose()

    asyncio.run(story())


def test_embeddings_come_and_can_be_given_up() -> None:
    async def story() -> None:
        async with supervised(spec("echo", prefill_delay_s_per_token=0.001, slots=1)) as supervisor:
            assert len(await supervisor.embed("e", (1, 2, 3))) == 16
            task = asyncio.create_task(supervisor.embed("f", (1,) * 3000))
            await until(lambda: supervisor.view.active == 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await answer(supervisor, generate("b", "b")) == "b"
            with pytest.raises(Failure) as failed:
                await supervisor.embed("g", (1,) * 5000)
            assert failed.value.code == "context_length_exceeded"

    asyncio.run(story())


# ---- dying -----------------------------------------------------------------------------------------------------------

TEXT = "four"


@pytest.mark.parametrize("signum", [signal.SIGABRT, signal.SIGSEGV, signal.SIGKILL])
def test_the_engine_may_die_after_every_token_of_an_answer(signum: signal.Signals) -> None:
    words = {6: "aborted (SIGABRT)", 11: "crashed (SIGSEGV)", 9: "was killed by signal 9"}[int(signum)]

    async def story() -> None:
        # Slower than the engine's window: each token is told at once.
        async with supervised(spec("echo", token_delay_s=0.04)) as supervisor:
            for at in range(len(TEXT) + 1):
                await is_ready(supervisor)
                said = ""
                with pytest.raises(Failure) as failed:  # noqa: PT012
                    async for event in supervisor.submit(generate("a", f"{TEXT}[[crash {int(signum)} at {at}]]")):
                        said += event.text if isinstance(event, Piece) else ""
                assert failed.value.code == "engine_died"
                assert words in failed.value.message
                assert said == TEXT[:at]
            assert supervisor.view.deaths == len(TEXT) + 1
            await is_ready(supervisor)
            assert await answer(supervisor, generate("b", TEXT)) == TEXT

    asyncio.run(story())


@pytest.mark.parametrize("phase", ["loading", "idle", "prefill", "stalled", "stopped"])
def test_the_engine_may_be_killed_in_every_phase(phase: str) -> None:
    async def story() -> None:
        slow = spec("echo", load_delay_s=0.5 if phase == "loading" else 0.0)
        async with supervised(slow, ready=False) as supervisor:
            await until(lambda: supervisor.view.pid is not None)
            if phase != "loading":
                await is_ready(supervisor)
            else:
                await until(lambda: supervisor.view.fraction > 0)
            pid = supervisor.view.pid
            assert pid is not None
            open_answer = None
            if phase in ("prefill", "stalled"):
                where = "prefill" if phase == "prefill" else "0"
                open_answer = supervisor.submit(generate("a", f"x[[stall 60s at {where}]]"))
                assert isinstance(await anext(open_answer), Started)
            elif phase == "stopped":
                os.kill(pid, signal.SIGSTOP)
            os.kill(pid, signal.SIGKILL)
            if open_answer is not None:
                with pytest.raises(Failure, match="killed by signal 9"):
                    [event async for event in open_answer]
            await until(lambda: supervisor.view.deaths == 1)
            await is_ready(supervisor)
            assert supervisor.view.pid != pid
            assert await answer(supervisor, generate("b", TEXT)) == TEXT

    asyncio.run(story())


def test_every_open_answer_is_told_of_a_death() -> None:
    async def story() -> None:
        async with supervised(spec("echo", slots=2, token_delay_s=0.002)) as supervisor:
            names = [str(number) for number in range(6)]
            tasks = [asyncio.create_task(answer(supervisor, generate(name, "[[tokens 900]]"))) for name in names]
            embedding = asyncio.create_task(supervisor.embed("e", (1, 2)))
            await until(lambda: supervisor.view.completion_tokens_total > 5)
            os.kill(supervisor.view.pid or 0, signal.SIGKILL)
            outcomes = await asyncio.gather(*tasks, embedding, return_exceptions=True)
            assert {o.code for o in outcomes if isinstance(o, Failure)} == {"engine_died"}
            assert len([o for o in outcomes if isinstance(o, Failure)]) == len(outcomes)

    asyncio.run(story())


def test_the_tokenizer_may_die_and_nobody_else_notices() -> None:
    async def story() -> None:
        async with supervised(spec("echo", token_delay_s=0.005)) as supervisor:
            running = asyncio.create_task(answer(supervisor, generate("a", "[[tokens 200]]")))
            before = supervisor.tokenizer.pid
            os.kill(before or 0, signal.SIGSEGV)
            await until(lambda: supervisor.tokenizer.pid not in (None, before))
            assert (await supervisor.tokenizer.tokenize("a", special=False, bos=False)).tokens == (97,)
            assert len(await running) == 200
            assert supervisor.view.state is EngineState.READY
            assert supervisor.view.deaths == 0

    asyncio.run(story())


def test_a_question_to_a_dying_tokenizer_fails() -> None:
    async def story() -> None:
        async with supervised(spec("echo")) as supervisor:
            pid = supervisor.tokenizer.pid or 0
            os.kill(pid, signal.SIGSTOP)
            question = asyncio.create_task(supervisor.tokenizer.tokenize("a", special=False, bos=False))
            await asyncio.sleep(0)
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(Failure) as failed:
                await question
            assert failed.value.code == "engine_died"

    asyncio.run(story())


# ---- giving up -------------------------------------------------------------------------------------------------------


def test_deaths_without_progress_end_in_failed() -> None:
    async def story() -> None:
        doomed, good = spec("doomed", load_crash=6), spec("good")
        patience = Patience(first_delay_s=0.0, max_deaths=3)
        async with supervised(doomed, good, ready=False, patience=patience) as supervisor:
            await until(lambda: supervisor.view.state is EngineState.FAILED)
            assert supervisor.view.deaths == 3
            assert "aborted (SIGABRT)" in supervisor.view.detail
            with pytest.raises(Failure) as failed:
                supervisor.submit(generate("a", "x"))
            assert failed.value.code == "model_failed"
            with pytest.raises(Failure) as failed:
                await supervisor.tokenizer.tokenize("a", special=False, bos=False)
            assert failed.value.code == "model_failed"
            await supervisor.load("good")
            await is_ready(supervisor)
            assert await answer(supervisor, generate("a", "x")) == "x"

    asyncio.run(story())


def test_a_model_that_dies_of_every_prompt_is_given_up() -> None:
    async def story() -> None:
        async with supervised(spec("echo"), patience=Patience(first_delay_s=0.0, max_deaths=2)) as supervisor:
            for number in range(2):
                await is_ready(supervisor)
                with pytest.raises(Failure, match="SIGABRT"):
                    await answer(supervisor, generate(str(number), "x[[crash 6 at prefill]]"))
            await until(lambda: supervisor.view.state is EngineState.FAILED)

    asyncio.run(story())


def test_progress_makes_deaths_count_anew() -> None:
    async def story() -> None:
        async with supervised(spec("echo"), patience=Patience(first_delay_s=0.0, max_deaths=2)) as supervisor:
            for number in range(3):
                await is_ready(supervisor)
                with pytest.raises(Failure, match="SIGABRT"):
                    await answer(supervisor, generate(str(number), "x[[crash 6 at 1]]"))
            assert supervisor.view.state is not EngineState.FAILED
            await is_ready(supervisor)
            os.kill(supervisor.view.pid or 0, signal.SIGKILL)
            await until(lambda: supervisor.view.state is EngineState.FAILED)
            assert "2 times in a row" in supervisor.view.detail

    asyncio.run(story())


@pytest.mark.parametrize(
    "bad, words",
    [
        (spec("bad", load_error="the model is too old\nconvert it again"), "the model is too old\nconvert it again"),
        (spec("bad", backend="ecco"), "did you mean 'echo'"),
        (spec("bad", token_delay_s="soon"), "engine.echo.token_delay_s"),
        (spec("bad", chat_format="jinjja"), "did you mean 'jinja'"),
    ],
    ids=["refused load", "unknown backend", "wrong option", "unknown chat format"],
)
def test_what_cannot_work_is_refused_at_once_with_its_reason(bad: ModelSpec, words: str) -> None:
    async def story() -> None:
        async with supervised(bad, ready=False) as supervisor:
            await until(lambda: supervisor.view.state is EngineState.FAILED)
            assert words in supervisor.view.detail
            assert supervisor.view.deaths == 0
            with pytest.raises(Failure, match="cannot be served"):
                supervisor.submit(generate("a", "x"))

    asyncio.run(story())


# ---- loading, unloading, closing -------------------------------------------------------------------------------------


def test_while_loading_requests_are_told_when_to_come_back_and_the_tokenizer_answers() -> None:
    async def story() -> None:
        async with supervised(spec("echo", load_delay_s=5.0), ready=False) as supervisor:
            await until(lambda: supervisor.view.fraction > 0)
            with pytest.raises(Failure) as failed:
                supervisor.submit(generate("a", "x"))
            assert failed.value.code == "model_loading"
            assert failed.value.retry_after_s is not None
            assert 1 <= failed.value.retry_after_s <= 120
            assert (await supervisor.tokenizer.tokenize("a", special=False, bos=False)).tokens == (97,)
            assert supervisor.view.state is EngineState.LOADING

    asyncio.run(story())


def test_another_model_takes_the_place_of_the_loaded_one() -> None:
    async def story() -> None:
        brake = Brake()
        async with supervised(spec("one", slots=1), spec("two", slots=2), brake=brake) as supervisor:
            first = supervisor.view.pid
            open_answer = supervisor.submit(generate("a", "x[[stall 60s at 0]]"))
            await supervisor.load("two")
            assert (supervisor.view.state, supervisor.view.model) == (EngineState.LOADING, "two")
            with pytest.raises(Failure) as failed:
                [event async for event in open_answer]
            assert failed.value.code == "model_not_loaded"
            await is_ready(supervisor)
            assert is_gone(first)
            assert supervisor.view.info is not None
            assert supervisor.view.info.slots == 2
            assert brake.pids[-1] == supervisor.view.pid
            assert first in brake.pids
            await supervisor.load("two")
            assert supervisor.view.state is EngineState.READY
            with pytest.raises(KeyError):
                await supervisor.load("three")

    asyncio.run(story())


def test_the_last_of_many_orders_wins() -> None:
    async def story() -> None:
        async with supervised(spec("one"), spec("two"), ready=False) as supervisor:
            await supervisor.load("two")
            await supervisor.unload()
            await supervisor.load("one")
            await supervisor.load("two")
            await is_ready(supervisor)
            assert supervisor.view.model == "two"
            assert await answer(supervisor, generate("a", "x")) == "x"

    asyncio.run(story())


def test_an_unloaded_model_leaves_nothing_behind() -> None:
    async def story() -> None:
        async with supervised(spec("echo")) as supervisor:
            pids = supervisor.view.pid, supervisor.tokenizer.pid
            await supervisor.unload()
            assert supervisor.view.state is EngineState.UNLOADED
            with pytest.raises(Failure) as failed:
                supervisor.submit(generate("a", "x"))
            assert failed.value.code == "model_not_loaded"
            await until(lambda: all(is_gone(pid) for pid in pids))
            await supervisor.load("echo")
            await is_ready(supervisor)

    asyncio.run(story())


def test_parking_for_heat_kills_the_engine_and_refuses_to_load() -> None:
    async def story() -> None:
        async with supervised(spec("echo")) as supervisor:
            pid = supervisor.view.pid
            open_answer = supervisor.submit(generate("a", "x[[stall 60s at 0]]"))
            await supervisor.park("dimm 2 at 81 °C")
            assert is_gone(pid)
            with pytest.raises(Failure) as failed:
                [event async for event in open_answer]
            assert failed.value.code == "thermal_trip"
            with pytest.raises(Failure, match="dimm 2 at 81 °C"):
                supervisor.submit(generate("b", "x"))
            with pytest.raises(Failure, match="dimm 2 at 81 °C"):
                await supervisor.load("echo")
            supervisor.unpark()
            await supervisor.load("echo")
            await is_ready(supervisor)

    asyncio.run(story())


@pytest.mark.parametrize("phase", ["loading", "answering", "stopped"])
def test_closing_ends_answers_children_and_descriptors(phase: str) -> None:
    before = set(Path("/proc/self/fd").iterdir())

    async def story() -> None:
        async with supervised(spec("echo", load_delay_s=5.0 if phase == "loading" else 0), ready=False) as supervisor:
            open_answer = None
            await until(lambda: supervisor.view.pid and supervisor.tokenizer.pid)
            pids = supervisor.view.pid, supervisor.tokenizer.pid
            if phase != "loading":
                await is_ready(supervisor)
                open_answer = supervisor.submit(generate("a", "x[[stall 60s at 0]]"))
            if phase == "stopped":
                os.kill(pids[0] or 0, signal.SIGSTOP)
            await supervisor.close("SIGTERM")
            assert supervisor.view.state is EngineState.STOPPING
            assert all(is_gone(pid) for pid in pids)
            if open_answer is not None:
                with pytest.raises(Failure) as failed:
                    [event async for event in open_answer]
                assert failed.value.code == "shutting_down"
            with pytest.raises(Failure) as failed:
                supervisor.submit(generate("b", "x"))
            assert failed.value.code == "shutting_down"
            await supervisor.close("twice")

    asyncio.run(story())
    assert set(Path("/proc/self/fd").iterdir()) == before
