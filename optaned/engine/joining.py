"""Joins a loaded model to the tiers that its plan names: pages, movers, policy and saved heat become one steward.

Everything here raises OptanedError in one line, and nothing has moved then.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec

from optaned.domain.model import ModelIndex
from optaned.engine.block_house import BlockHouse
from optaned.engine.carrier import Carrier
from optaned.engine.declared import env_of, validated
from optaned.engine.learning import Learning
from optaned.engine.messages import Placement, TierSpec
from optaned.engine.page_house import PageHouse
from optaned.engine.residents import Residents
from optaned.engine.steward import Send, Speed, Steward
from optaned.errors import ConfigError
from optaned.hooks.drivers import Mapped, Model, Movable, Mover, Pages, PlacementPolicy
from optaned.hooks.host import PluginHost
from optaned.placement.heat import Heat
from optaned.residency.account import Account
from optaned.residency.block import Announces, BlockStore, refusal
from optaned.residency.heat_file import HeatFlusher, read_heat
from optaned.residency.opening import open_pages
from optaned.residency.pace import Pace
from optaned.residency.pages import ModelPages
from optaned.system.duty import duty_of
from optaned.system.thermal_word import Silence, WordReader

log = logging.getLogger("optaned.engine")

BYTE = "byte"


@dataclass(frozen=True)
class Joined:
    """A steward; the pace that must hear of decode steps, if one does; and whether the backend watches the router."""

    steward: Steward
    pace: Pace | None
    watched: bool


class Joining:
    """Opens what a placement asks for; what it opened is closed by `stack`, before the model is."""

    def __init__(self, placement: Placement, host: PluginHost, index: ModelIndex, stack: ExitStack) -> None:
        self._placement = placement
        self._host = host
        self._index = index
        self._stack = stack

    def join(self, model: Model, send: Send, *, word_path: Path | None, now_s: float) -> Joined:
        """Return the steward of a model that was just loaded, not settled and not started."""
        placement = self._placement
        book = Residents(self._index, placement.tiers, placement.home_tiers)
        learning = self._learning(model, now_s)
        if not placement.tiers:
            return Joined(Steward(PageHouse(book, Carrier(book, ())), learning, send=send), None, watched=False)
        store = self._store(model)
        if store is not None:
            return Joined(Steward(store, learning, send=send), None, watched=True)
        pace = Pace(placement.move_gbps, self._duty(word_path))
        pages = self._pages(model, pace)
        carrier = Carrier(book, [self._mover(spec, pages) for spec in placement.tiers])
        speed = Speed(lambda: pace.rate_gbps, lambda: pace.moved_bytes, pace.close)
        counted = _Anonymous(Account(pages.mappings))
        house = PageHouse(book, carrier)
        return Joined(Steward(house, learning, send=send, speed=speed, anonymous_bytes=counted), pace, watched=True)

    def _store(self, model: Model) -> BlockHouse | None:
        """Return the house of a model whose every shard lies on a block home; None where pages must do, and say why."""
        placement = self._placement
        if BYTE in placement.homes or not isinstance(model, Mapped):
            return None
        why = refusal() if isinstance(model, Announces) else "this backend does not announce its router's choices"
        if why is not None:
            log.warning("misses are read through the page cache: %s", why)
            return None
        budget = sum(spec.budget_bytes for spec in placement.tiers)
        store = BlockStore.open(self._index, model.mapped_files, [True] * len(placement.homes), budget_bytes=budget)
        self._stack.callback(store.close)
        if isinstance(model, Announces):
            store.attach(model)
            self._stack.callback(model.on_choice, 0, 0)
        first = msgspec.structs.replace(placement.tiers[0], budget_bytes=budget)
        return BlockHouse(self._index, store, first, placement.home_tiers)

    def policy(self) -> PlacementPolicy:
        """Return the policy, opened with its validated options."""
        driver = self._host.driver("placement_policies", self._placement.policy)
        options = validated(driver, self._placement.policy_options, "placement")
        policy: PlacementPolicy = driver.open(driver.name, options, env_of(driver))
        return policy

    def _learning(self, model: Model, now_s: float) -> Learning:
        path = None if self._placement.heat_path is None else Path(self._placement.heat_path)
        heat, flusher = self._saved(path), None
        if path is not None and self._index.expert_layers:
            flusher = HeatFlusher(path, digest=self._index.digest, now_s=now_s)
        return Learning(self._index, model, policy=self.policy(), heat=heat, flusher=flusher)

    def _saved(self, path: Path | None) -> Heat | None:
        if path is None or not self._index.expert_layers:
            return None
        experts = len(self._index.expert_layers) * self._index.expert_count
        return read_heat(path, digest=self._index.digest, experts=experts)

    def _pages(self, model: Model, pace: Pace) -> ModelPages:
        if not isinstance(model, Mapped):
            raise ConfigError(
                "this backend does not read its weights from mapped files, so nothing can be promoted; "
                'set placement.policy = "home"'
            )
        in_place = [home == BYTE for home in self._placement.homes]
        pages = open_pages(model.mapped_files, in_place=in_place, pace=pace)
        self._stack.callback(pages.close)
        return pages

    def _mover(self, spec: TierSpec, pages: Pages) -> Mover:
        driver = self._host.driver("tiers", spec.driver)
        options = validated(driver, spec.options, f"tiers.{spec.name}")
        tier = driver.open(spec.name, options, env_of(driver))
        self._stack.callback(tier.close)
        if not isinstance(tier, Movable):
            raise ConfigError(
                f"placement.promote_to: {spec.name} (driver {spec.driver}) takes no promoted bytes; name tiers of memory"
            )
        return tier.open_mover(pages)

    def _duty(self, word_path: Path | None) -> _Duty:
        duty = _Duty(word_path)
        self._stack.callback(duty.close)
        return duty


class _Duty:
    """The share of time in which pages may move, by the thermal word; 1 where no guard is to be obeyed."""

    def __init__(self, word_path: Path | None) -> None:
        self._reader = None if word_path is None else WordReader(word_path)

    def __call__(self) -> float:
        if self._reader is None:
            return 1.0
        said = self._reader.read()
        return 0.0 if isinstance(said, Silence) else duty_of(said)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()


class _Anonymous:
    """What the kernel counts as copied; says once why it cannot be told."""

    def __init__(self, account: Account) -> None:
        self._account: Account | None = account
        self._looked = False

    def __call__(self) -> int | None:
        if self._account is None:
            return None
        try:
            counted = self._account.look() if self._looked else self._account.look_at_all()
        except OSError as error:
            log.info("the kernel does not tell which pages are copied: %s", error)
            self._account = None
            return None
        self._looked = True
        if counted.swapped_bytes:
            log.warning("%d bytes of the model are swapped out: lower the tier's budget", counted.swapped_bytes)
        return counted.anonymous_bytes
