"""The models of the benchmarks on tiers: made once from the demo model, kept in the temporary folder, never fetched."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
from common import model_path

from optaned.testing.upcycle import upcycle

FOLDER = Path(tempfile.gettempdir(), "optaned-bench")


def moe(*, experts: int = 16, used: int = 4, skew: float = 1.0) -> Path:
    """Return the demo model with a router and routed experts: 16 experts make 0.85 GB, 64 make 3.2."""
    path = FOLDER / f"smol-{experts}x{used}-skew{skew:g}.gguf"
    return _kept(path, lambda out: upcycle(model_path(), out, experts=experts, used=used, skew=skew))


def repackable() -> Path:
    """Return the demo model in Q4_0, for which the library has kernels that want the weights in another order."""
    return _kept(FOLDER / "smol-q4_0.gguf", _requantize)


def _kept(path: Path, build: Callable[[Path], object]) -> Path:
    FOLDER.mkdir(exist_ok=True)
    if not path.exists():
        part = path.with_suffix(".part")
        build(part)
        part.replace(path)
    return path


def _requantize(out: Path) -> None:
    reader = gguf.GGUFReader(model_path())
    writer = gguf.GGUFWriter(out, "llama")
    for name, field in reader.fields.items():
        if not name.startswith(("GGUF.", "general.architecture", "general.file_type")):
            kind = field.types[0]
            writer.add_key_value(name, field.contents(), kind, field.types[-1] if len(field.types) > 1 else None)
    for tensor in reader.tensors:
        kind, data = tensor.tensor_type, np.asarray(tensor.data)
        if kind is gguf.GGMLQuantizationType.Q4_1:
            kind = gguf.GGMLQuantizationType.Q4_0
            data = gguf.quantize(gguf.dequantize(tensor.data, tensor.tensor_type), kind)
        writer.add_tensor(tensor.name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
