"""What is wrong with a plugin, told before it is used: API version, misspelled hooks, wrong declarations.

Looks, and calls nothing. Knows pluggy's markers and the hook specifications.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable

import pluggy
from pydantic import BaseModel

from optaned.hooks import spec
from optaned.hooks.drivers import Driver
from optaned.hooks.suggest import did_you_mean

HOOKS = frozenset(name for name in vars(spec) if name.startswith("optaned_"))
_DRIVER_NAME = re.compile(r"[a-z][a-z0-9_-]*")


def api_fault(plugin: object) -> str | None:
    """Return why a plugin's `OPTANED_API` does not fit `API`, or None."""
    needs = getattr(plugin, "OPTANED_API", None)
    offered = ".".join(map(str, spec.API))
    if needs is None:
        return f"states no API version; write OPTANED_API = {spec.API} in its module"
    if not (isinstance(needs, tuple) and len(needs) == 2 and all(type(n) is int for n in needs)):
        return f"OPTANED_API is {needs!r}, not a pair like {spec.API}"
    if needs[0] != spec.API[0] or needs[1] > spec.API[1]:
        return f"needs API {needs[0]}.{needs[1]}, this optaned offers {offered}"
    return None


def hook_fault(plugin: object, manager: pluggy.PluginManager, group: str) -> str | None:
    """Return why a plugin's hooks do not fit, or None. Pluggy itself checks arguments, at registration."""
    for name in sorted(dir(plugin)):
        options = manager.parse_hookimpl_opts(plugin, name)
        if options is None:
            if name in HOOKS and inspect.isroutine(getattr(plugin, name, None)):
                return f"{name} lacks its @hookimpl"
            continue
        hook = options.get("specname") or name
        if hook not in HOOKS:
            return f"no hook is named {hook!r}{did_you_mean(hook, HOOKS)}"
        if options.get("wrapper") or options.get("hookwrapper"):
            return f"{hook} is a wrapper, and wrappers are not called"
        right = spec.GUARD_GROUP if hook in spec.GUARD_HOOKS else spec.GROUP
        if group != right:
            return f"{hook} belongs to plugins of the entry-point group {right!r}, this one is in {group!r}"
    return None


def driver_fault(hook: str, declared: object) -> str | None:
    """Return why a declaring hook's result is not a list of sound drivers, or None."""
    if not isinstance(declared, (list, tuple)):
        return f"{hook} returned {type(declared).__name__}, not a list of Driver"
    for item in declared:
        if not isinstance(item, Driver):
            return f"{hook} returned a list with {type(item).__name__} in it, not Driver"
        if not (isinstance(item.name, str) and _DRIVER_NAME.fullmatch(item.name)):
            return f"{hook}: a driver's name is like 'my-driver', not {item.name!r}"
        if not (isinstance(item.options, type) and issubclass(item.options, BaseModel)):
            return f"{hook}: driver {item.name!r}: options must be a pydantic model"
        if not callable(item.open):
            return f"{hook}: driver {item.name!r}: open must be callable"
    return _twice(hook, [d.name for d in declared])


def _twice(hook: str, names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return f"{hook} declares {name!r} twice"
        seen.add(name)
    return None
