"""What every configuration can do: refuse a value by name, with the fix, and be read from plain data."""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

ConfigT = TypeVar("ConfigT")


class ConfigError(Exception):
    """A setting that cannot work; the message names the field, the value and the fix."""


def require(condition: bool, name: str, value: object, fix: str) -> None:
    """Refuse `value` for the field `name` unless `condition` holds."""
    if not condition:
        raise ConfigError(f"{name} = {value!r} cannot work: {fix}.")


def near_and_known(name: str, known: Iterable[str]) -> str:
    """The end of an error message about an unknown name: the nearest known ones, then all."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=2, cutoff=0.5)
    did_you_mean = f"did you mean {' or '.join(repr(n) for n in near)}? " if near else ""
    return f"{did_you_mean}Known: {', '.join(names)}"


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
