"""The native parts. Everything else about this package is said in pyproject.toml.

They are plain shared objects, opened with ctypes, so that they need a C compiler but no Python headers. Where there is none
the install goes on without them, and what needs them says so when it is used.
"""

from __future__ import annotations

from setuptools import Extension, setup

_SOURCES = {
    "optaned_llamacpp._tap": ["plugins/optaned_llamacpp/_tap.c"],
    "optaned.residency._block": [f"optaned/residency/_{part}.c" for part in ("block", "fill", "warmth")],
    "optaned.residency._nopopulate": ["optaned/residency/_nopopulate.c"],
}

setup(
    ext_modules=[
        Extension(
            name,
            sources,
            extra_compile_args=["-std=c11", "-O2", "-Wall", "-Wextra", "-pthread"],
            depends=["optaned/residency/_fill.h", "optaned/residency/_warmth.h"],
            libraries=["m"],
            define_macros=[("_GNU_SOURCE", "1")],
            optional=True,
        )
        for name, sources in _SOURCES.items()
    ]
)
