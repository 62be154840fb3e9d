"""Which shards make one model: in order, none missing, none twice. Knows headers; reads no file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from optaned.errors import ModelFileError
from optaned.index.header import Header

_NUMBERED = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.DOTALL)
# Real models have dozens; the limit keeps a lying count from naming 65,000 missing files.
_NAMED_MISSING = 5


def order_shards(headers: Sequence[Header]) -> tuple[Header, ...]:
    """Return the shards of one model by their number.

    The order in which files were given does not matter: shards on two mounts come interleaved. Raises ModelFileError
    for missing, doubled, misnumbered or foreign shards, naming the file.
    """
    if not headers:
        raise ModelFileError("a model needs at least one file; check `files` of the model")
    count = _number(headers[0], "split.count", default=1)
    if count <= 1 and len(headers) > 1:
        raise ModelFileError(
            f"{headers[1].path}: a second model beside {headers[0].path}; name the files of one model only"
        )
    by_number: dict[int, Header] = {}
    for header in headers:
        _check_count(header, count)
        number = _number(header, "split.no", default=0)
        if number in by_number:
            raise ModelFileError(
                f"{header.path}: shard {number + 1} of {count} again, as {by_number[number].path} is; drop one"
            )
        by_number[number] = header
    _check_complete(by_number, max(count, 1))
    ordered = tuple(by_number[number] for number in sorted(by_number))
    _check_tensors(ordered)
    return ordered


def _number(header: Header, key: str, *, default: int) -> int:
    value: Any = header.metadata.get(key, default)
    if type(value) is not int or not 0 <= value < 1 << 16:
        raise ModelFileError(f"{header.path}: corrupt: {key} is {value!r}; fetch it again")
    return value


def _check_count(header: Header, count: int) -> None:
    own, number = _number(header, "split.count", default=1), _number(header, "split.no", default=0)
    if max(own, 1) != max(count, 1):
        raise ModelFileError(
            f"{header.path}: a shard of {own}, beside shards of {count}; name the files of one model only"
        )
    if number >= max(own, 1):
        raise ModelFileError(f"{header.path}: corrupt: it says to be shard {number + 1} of {own}; fetch it again")
    named = _NUMBERED.fullmatch(header.path.name)
    if named and own > 1 and (int(named[2]), int(named[3])) != (number + 1, own):
        raise ModelFileError(
            f"{header.path}: its name says shard {int(named[2])} of {int(named[3])}, its header {number + 1} of {own}; "
            "was it renamed?"
        )


def _check_complete(by_number: dict[int, Header], count: int) -> None:
    missing = [number for number in range(count) if number not in by_number]
    if not missing:
        return
    some = next(iter(by_number.values()))
    named = _NUMBERED.fullmatch(some.path.name)
    names = [
        f"{named[1]}-{n + 1:05}-of-{count:05}.gguf" if named else f"number {n + 1}" for n in missing[:_NAMED_MISSING]
    ]
    more = f" and {len(missing) - _NAMED_MISSING} more" if len(missing) > _NAMED_MISSING else ""
    raise ModelFileError(
        f"{some.path}: {len(missing)} of {count} shards missing: {', '.join(names)}{more}; fetch them or widen `files`"
    )


def _check_tensors(ordered: Sequence[Header]) -> None:
    seen: dict[str, Header] = {}
    for header in ordered:
        for tensor in header.tensors:
            if tensor.name in seen:
                raise ModelFileError(
                    f"{header.path}: corrupt: tensor {tensor.name!r} is in {seen[tensor.name].path} already; "
                    "fetch it again"
                )
            seen[tensor.name] = header
    expected = ordered[0].metadata.get("split.tensors.count")
    if expected is not None and expected != len(seen):
        raise ModelFileError(
            f"{ordered[0].path}: its shards hold {len(seen)} tensors, its header says {expected}; "
            "are all shards of one download?"
        )
