"""`optanectl chat`: a conversation in memory. What is said is kept until `/clear` or the end, and nowhere else."""

from __future__ import annotations

import sys

import click

from optaned.cli.ctl.asking import Asking, Question
from optaned.cli.ctl.daemon import Daemon
from optaned.cli.ctl.lines import LineReader
from optaned.cli.ctl.options import daemon_of, sampling_options, terminal
from optaned.cli.ctl.terminal import Terminal
from optaned.errors import OptanedError

HELP = """\
/system TEXT   set the instructions (without TEXT: show them)
/clear         forget the conversation
/exit          leave (also Ctrl-D)
\"\"\"            begin and end a message of several lines
Ctrl-C         cancel the answer; twice at the prompt: leave"""


@click.command("chat")
@sampling_options
@click.pass_context
def command(
    context: click.Context,
    model: str | None,
    system: str | None,
    max_tokens: int | None,
    temperature: float | None,
    seed: int | None,
) -> int:
    """Talk with the model, turn by turn. /help lists what else can be typed."""
    settings = Question((), model, max_tokens, temperature, seed)
    talk = Talk(daemon_of(context), terminal(), settings, system)
    return talk.run(LineReader(sys.stdin, sys.stdout))


class Talk:
    """The conversation so far. `run` returns the exit code."""

    def __init__(self, daemon: Daemon, screen: Terminal, settings: Question, system: str | None) -> None:
        self._daemon, self._screen, self._settings = daemon, screen, settings
        self._system = system or ""
        self._turns: list[dict[str, str]] = []
        self._fault: OptanedError | None = None

    def run(self, lines: LineReader) -> int:
        """Read and answer until /exit, the end of input, or a second Ctrl-C at the prompt."""
        interrupted = False
        while True:
            try:
                text = lines.read_message()
            except KeyboardInterrupt:
                if interrupted:
                    self._screen.say("")
                    return 130
                interrupted = True
                self._screen.say("\n(Ctrl-C again or Ctrl-D leaves)")
                continue
            interrupted = False
            if text is None or text.strip() == "/exit":
                return self._leave(interactive=lines.interactive)
            if text.startswith("/"):
                self._obey(text)
            elif text.strip():
                self._answer(text)

    def _leave(self, *, interactive: bool) -> int:
        """Somebody at a terminal saw each fault; a script sees the last one as the exit code."""
        return 0 if interactive or self._fault is None else self._fault.exit_code

    def _obey(self, text: str) -> None:
        word, _, rest = text.strip().partition(" ")
        if word == "/clear":
            self._turns.clear()
            self._screen.say("(forgotten)")
        elif word == "/system":
            self._system = rest.strip() or self._system
            self._screen.say(f"(system: {self._system or 'none'})")
        else:
            self._screen.say(HELP if word == "/help" else f"unknown command {word}; /help lists them")

    def _answer(self, text: str) -> None:
        turns = [*self._turns, {"role": "user", "content": text}]
        system = [{"role": "system", "content": self._system}] if self._system else []
        asking = Asking(self._daemon, self._screen)
        self._fault = None
        try:
            asking.show(self._settings.about([*system, *turns]))
        except KeyboardInterrupt:
            self._screen.say("(cancelled)")
        except OptanedError as error:
            self._fault = error
            for line in error.lines:
                self._screen.say(f"optanectl: {line}")
        else:
            if self._screen.live:
                self._screen.say(f"({asking.answer.summary})")
        # What was seen is remembered, whole or not; a question without any answer is not: it may be asked again.
        if asking.answer.content:
            self._turns = [*turns, {"role": "assistant", "content": asking.answer.content}]
