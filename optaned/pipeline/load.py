"""Stage 4, the part before the engine: what a backend is asked to load. Loading itself happens in the engine."""

from __future__ import annotations

from optaned.config.resolve import ResolvedModel
from optaned.config.schema import Engine
from optaned.domain.model import ModelIndex
from optaned.hooks.drivers import LoadRequest
from optaned.pipeline.threads import affinity, threads_for


def load_request(model: ResolvedModel, engine: Engine, index: ModelIndex | None) -> LoadRequest:
    """Return the request for a declared model: shards in the header's order, threads within the affinity mask."""
    return LoadRequest(
        files=tuple(shard.path for shard in index.shards) if index else model.files,
        context=model.context,
        slots=engine.slots,
        threads=threads_for(engine.threads, affinity()),
        batch=engine.batch,
        kv_cache=model.kv_cache,
        index=index,
    )
