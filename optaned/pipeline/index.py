"""Stage 2: read the headers of a model's shards, and hold them against what the configuration says of them."""

from __future__ import annotations

from optaned.config.resolve import ResolvedModel
from optaned.domain.model import ModelIndex
from optaned.errors import ConfigError
from optaned.index import read_index
from optaned.pipeline.stage import stage


def index_model(model: ResolvedModel) -> ModelIndex:
    """Return the model's index. Raises ModelFileError for broken shards, ConfigError if `weights` says otherwise."""
    with stage("index", f"models.{model.name}"):
        index = read_index(model.files)
        if model.weights is not None and not _is_quantized_as(model.weights, index.quantization):
            raise ConfigError(
                f"quantization.weights is {model.weights!r}, but the files hold {index.quantization}; "
                "correct one of them"
            )
        return index


def _is_quantized_as(wanted: str, found: str) -> bool:
    """Compare names as people write them: case, a vendor's prefix ("UD-") and the mix's size ("_M") may differ."""
    wanted = wanted.upper().removeprefix("UD-").replace("-", "_")
    return found == wanted or found.startswith(f"{wanted}_") or wanted.startswith(f"{found}_")
