"""Mirostat steers the surprise of an answer."""

from __future__ import annotations

import numpy as np
import pytest

from optaned_llamacpp.mirostat import Mirostat

LOGITS = (np.random.default_rng(0).standard_normal(2000) * 3).astype(np.float32)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("tau", [2.0, 5.0])
def test_the_mean_surprise_settles_near_the_target(version: int, tau: float) -> None:
    draws = np.random.default_rng(1)
    mirostat = Mirostat(version, tau, eta=0.1)
    surprises = []
    for _ in range(600):
        _, surprise = mirostat.choose(LOGITS, draws.random())
        mirostat.learn(surprise)
        surprises.append(surprise)
    assert np.mean(surprises[200:]) == pytest.approx(tau, abs=0.5)


@pytest.mark.parametrize("version", [1, 2])
def test_no_patience_for_surprise_leaves_the_likeliest_token(version: int) -> None:
    mirostat = Mirostat(version, 0.0, eta=0.1)
    assert mirostat.choose(LOGITS, 0.999)[0] == LOGITS.argmax()


@pytest.mark.parametrize("version", [1, 2])
def test_one_candidate_is_chosen_without_surprise(version: int) -> None:
    assert Mirostat(version, 5.0, 0.1).choose(np.array([1.0], dtype=np.float32), 0.5) == (0, 0.0)
