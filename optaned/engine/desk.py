"""The tokenizer's questions and answers: text to tokens and back, prompts, grammars. Knows no process, no weights."""

from __future__ import annotations

from optaned.engine.messages import (
    CheckGrammar,
    Detokenize,
    Failed,
    FromWorker,
    Render,
    Rendered,
    SchemaGrammar,
    Text,
    Tokenize,
    Tokens,
    ToWorker,
)
from optaned.hooks.drivers import ChatError, ChatFormat, ChatRequest, GrammarError, Segment, Vocabulary


class Desk:
    """Answers one question at a time. A client's mistake is a `Failed`, never an exception."""

    def __init__(self, vocabulary: Vocabulary, chat_format: ChatFormat) -> None:
        self._vocabulary = vocabulary
        self._chat_format = chat_format

    def answer(self, question: ToWorker) -> FromWorker | None:
        """Return the answer; None for a message that is no question to a tokenizer."""
        match question:
            case Tokenize():
                tokens = self._vocabulary.tokenize(question.text, special=question.special, bos=question.bos)
                pieces = tuple(self._vocabulary.piece(token, special=True) for token in tokens)
                return Tokens(question.id, tuple(tokens), pieces)
            case Detokenize():
                return self._detokenize(question)
            case Render():
                return self._render(question)
            case CheckGrammar():
                return self._check_grammar(question)
            case SchemaGrammar():
                return self._schema_grammar(question)
        return None

    def _detokenize(self, question: Detokenize) -> FromWorker:
        size = self._vocabulary.info.size
        strange = [token for token in question.tokens if not 0 <= token < size]
        if strange:
            return Failed(question.id, "token_invalid", f"token {strange[0]} is not in the vocabulary of {size} tokens")
        text = b"".join(self._vocabulary.piece(token, special=True) for token in question.tokens)
        return Text(question.id, text.decode(errors="replace"))

    def _render(self, question: Render) -> FromWorker:
        request = ChatRequest(question.messages, question.continue_assistant, question.template_kwargs)
        try:
            segments = self._chat_format.render(request)
        except ChatError as error:
            return Failed(question.id, "chat_invalid", str(error))
        text = "".join(segment.text for segment in segments)
        return Rendered(question.id, text, tuple(self._tokens(segments)))

    def _tokens(self, segments: tuple[Segment, ...]) -> list[int]:
        """Tokenise markup and user text apart, so that what a user writes never becomes a control token."""
        tokens: list[int] = []
        for number, segment in enumerate(segments):
            tokens += self._vocabulary.tokenize(segment.text, special=segment.markup, bos=number == 0)
        begin = self._vocabulary.info.bos
        # Many templates spell the begin token that the vocabulary adds anyway.
        if begin is not None and tokens[:2] == [begin, begin]:
            del tokens[0]
        return tokens

    def _check_grammar(self, question: CheckGrammar) -> FromWorker:
        try:
            self._vocabulary.check_grammar(question.grammar)
        except GrammarError as error:
            return Failed(question.id, "grammar_invalid", str(error))
        return Text(question.id, question.grammar)

    def _schema_grammar(self, question: SchemaGrammar) -> FromWorker:
        try:
            return Text(question.id, self._vocabulary.schema_grammar(question.schema))
        except GrammarError as error:
            return Failed(question.id, "grammar_invalid", str(error))
