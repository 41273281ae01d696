"""What every configuration can do: refuse a value by name, with the fix, and be read from plain data."""

from __future__ import annotations

import difflib
import math
import numbers
import types
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

ConfigT = TypeVar("ConfigT")


class ConfigError(Exception):
    """A setting that cannot work; the message names the field, the value and the fix."""


class DivergedError(Exception):
    """Training has arrived at numbers that are none; going on would only overwrite what was good."""

    def __init__(self, symptom: str) -> None:
        super().__init__(
            f"training has diverged ({symptom}): the step size may be too large, or the task has paid or shown "
            "a number that is none"
        )


class ProcessDiedError(Exception):
    """A process that simulates is gone, and what it simulated with it."""


def require_finite(measured: Mapping[str, float]) -> None:
    """Refuse to go on from an update of which not all numbers are finite."""
    broken = {name: number for name, number in measured.items() if not math.isfinite(number)}
    if broken:
        raise DivergedError(", ".join(f"{name} = {number}" for name, number in broken.items()))


def require(condition: bool, name: str, value: object, fix: str) -> None:
    """Refuse `value` for the field `name` unless `condition` holds."""
    if not condition:
        raise ConfigError(f"{name} = {value!r} cannot work: {fix}.")


def near_and_known(name: str, known: Iterable[str]) -> str:
    """The end of an error message about an unknown name: the nearest known ones, then all."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=2, cutoff=0.5)
    if not near:
        return f"known are {', '.join(names)}"
    return f"did you mean {' or '.join(repr(n) for n in near)}? Known: {', '.join(names)}"


def require_known_choices(config: object, where: str = "") -> None:
    """Refuse a word that is not among the choices of its field."""
    for name, choices in _choices(type(config)).items():
        value = getattr(config, name)
        require(
            not isinstance(value, str) or value in choices, where + name, value, near_and_known(str(value), choices)
        )


@cache
def _choices(cls: type[Any]) -> dict[str, tuple[str, ...]]:
    """The words that each field of a config dataclass admits, for those that admit words of a list only."""
    found: dict[str, tuple[str, ...]] = {}
    for name, hint in get_type_hints(cls).items():
        literals = [h for h in (hint, *get_args(hint)) if get_origin(h) is Literal]
        if literals:
            found[name] = tuple(word for literal in literals for word in get_args(literal))
    return found


def from_dict(cls: type[ConfigT], record: Mapping[str, Any], where: str = "") -> ConfigT:
    """Build a config dataclass from plain data (JSON or a user's dict), naming any key it does not know."""
    hints = get_type_hints(cls)
    known = {f.name: f for f in fields(cls)}  # pyright: ignore[reportArgumentType]
    for key in record:
        if key not in known:
            raise ConfigError(f"unknown setting {where + key!r}: {near_and_known(key, known)}")
    values = {key: _restore(value, hints[key], where + key + ".") for key, value in record.items()}
    for key, value in values.items():
        require(_fits(value, hints[key]), where + key, value, f"give {_kind(hints[key])}")
    missing = [n for n, f in known.items() if n not in values and f.default is f.default_factory is MISSING]
    if missing:
        raise ConfigError(f"missing setting: {', '.join(where + n for n in missing)}")
    return cls(**values)


def _restore(value: Any, hint: Any, where: str) -> Any:
    if is_dataclass(hint) and isinstance(value, Mapping):
        return from_dict(cast(type[Any], hint), cast(Mapping[str, Any], value), where)
    if get_origin(hint) in (Union, types.UnionType):
        inner = [h for h in get_args(hint) if get_origin(h) is tuple]
        return _restore(value, inner[0], where) if inner and isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType]
    if get_origin(hint) is tuple and isinstance(value, list):
        return tuple(cast(list[Any], value))
    return value


def _fits(value: Any, hint: Any) -> bool:
    """Whether plain data has the type of its field; a YAML reader may have taken 1e-3 for a word."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, h) for h in arguments)
    if origin is Literal:
        return isinstance(value, str)  # which words there are, the configuration itself says better
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(v, arguments[0]) for v in cast(tuple[Any, ...], value))
    if hint in (int, float):
        kind = numbers.Integral if hint is int else numbers.Real
        return not isinstance(value, bool) and isinstance(value, kind)
    return isinstance(value, hint)


def _kind(hint: Any) -> str:
    """A type in a user's words."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_kind(h) for h in get_args(hint))
    if origin is tuple:
        return f"a list, each entry {_kind(get_args(hint)[0])}"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", types.NoneType: "nothing"}
    return words.get(hint, "a word of its list" if origin is Literal else "a group of settings")
