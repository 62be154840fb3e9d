"""Devices are listed and placed on as the library does it: on a made-up list, and on what is really here."""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import SimpleNamespace

import pytest

from optaned.api import Backend, ConfigError, Device, LoadRequest, Offload, Offloads, UnavailableError
from optaned_llamacpp.devices import Devices

GIB = 1 << 30


class Ggml:
    """A library with a processor, a helper of it and two GPUs; addresses are numbers from 100 on."""

    KINDS = (0, 1, 3, 2)
    NAMES = (b"CPU", b"CUDA0", b"BLAS", b"Vulkan0")

    def ggml_backend_dev_count(self) -> int:
        return len(self.KINDS)

    def ggml_backend_dev_get(self, number: int) -> int:
        return 100 + number

    def ggml_backend_dev_type(self, address: int) -> int:
        return self.KINDS[address - 100]

    def ggml_backend_dev_name(self, address: int) -> bytes:
        return self.NAMES[address - 100]

    def ggml_backend_dev_description(self, address: int) -> bytes:
        return b"a card of " + self.NAMES[address - 100]

    def ggml_backend_dev_memory(self, address: int, free: int, total: int) -> None:
        ctypes.c_size_t.from_address(free).value = 10 * GIB
        ctypes.c_size_t.from_address(total).value = 24 * GIB

    def ggml_backend_cpu_buffer_type(self) -> int:
        return 77


def placed(*offload: Offload) -> tuple[SimpleNamespace, tuple[object, ...]]:
    params = SimpleNamespace(n_gpu_layers=-1, devices=None, tensor_buft_overrides=None)
    return params, Devices(Ggml()).place(params, offload)


def test_gpus_are_told_from_processors() -> None:
    first, second = Devices(Ggml()).describe()
    assert first == Device("CUDA0", "a card of CUDA0", 24 * GIB, 10 * GIB)
    assert second.name == "Vulkan0"


def test_without_an_offload_everything_stays_in_main_memory() -> None:
    params, _ = placed()
    assert (params.n_gpu_layers, params.devices) == (0, None)


@pytest.mark.parametrize(("layers", "asked"), [(None, -1), (0, 1), (20, 21)])
def test_layers_are_counted_as_the_library_does(layers: int | None, asked: int) -> None:
    params, _kept = placed(Offload("CUDA0", layers))
    assert params.n_gpu_layers == asked
    assert list((ctypes.c_void_p * 2).from_address(params.devices)) == [101, None]


def test_experts_and_what_is_kept_stay_in_main_memory() -> None:
    params, _kept = placed(Offload("Vulkan0", keep=("attn_k",)))
    words = (ctypes.c_void_p * 6).from_address(params.tensor_buft_overrides)
    patterns = [ctypes.string_at(words[0] or 0), ctypes.string_at(words[2] or 0)]
    assert patterns == [rb"_exps\.", b"attn_k"]
    assert [words[1], words[3], words[4]] == [77, 77, None]


def test_a_device_that_is_not_there_and_several_are_refused() -> None:
    with pytest.raises(UnavailableError, match="no device 'CUDA1'; here: CUDA0, Vulkan0"):
        placed(Offload("CUDA1"))
    with pytest.raises(ConfigError, match="can be placed on one device"):
        placed(Offload("CUDA0"), Offload("Vulkan0"))


def test_the_backend_offers_its_devices(backend: Backend) -> None:
    assert isinstance(backend, Offloads)
    assert all(device.total_bytes > 0 for device in backend.devices())


def test_a_build_without_devices_refuses_to_offload(backend: Backend, tiny_file: Path) -> None:
    assert isinstance(backend, Offloads)
    if backend.devices():
        pytest.skip("this build has a device")
    request = LoadRequest((tiny_file,), context=64, slots=1, threads=1, offload=(Offload("CUDA0"),))
    with pytest.raises(UnavailableError, match="no device 'CUDA0'; here: none"):
        backend.load(request, lambda _fraction: True)


def test_a_real_device_takes_the_layers(backend: Backend, tiny_file: Path) -> None:
    assert isinstance(backend, Offloads)
    devices = backend.devices()
    if not devices:
        pytest.skip("the library here is built for processors alone, or there is no GPU")
    request = LoadRequest((tiny_file,), context=64, slots=1, threads=1, offload=(Offload(devices[0].name),))
    model = backend.load(request, lambda _fraction: True)
    try:
        assert model.info.parameters > 0
    finally:
        model.close()
