"""Templates in declarations: ``{{ env.X }}``, and whatever else Dagster puts into their scope.

A value that is one expression becomes what the expression is; text around expressions makes text.
``{{ env.X }}`` of a variable that is not set is an error, never an empty text: a topic whose name
lost a part would be another topic. ``{{ env('X', 'default') }}`` and ``{{ env.X or 'default' }}``
give a default.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, StrictUndefined, TemplateError, Undefined, UndefinedError

from penstock_platform.problems import KeyPath

_ONE_EXPRESSION = re.compile(r"\s*\{\{((?:(?!\}\}|\{\{).)*)\}\}\s*", re.DOTALL)
_MARKS = ("{{", "{%")
_REQUIRED: Any = object()


class _Unset(StrictUndefined):
    """What is not there: false, so that ``or`` gives a default; an error in any other use."""

    __slots__ = ()
    __bool__ = Undefined.__bool__  # type: ignore[assignment]


class EnvironmentVariables:
    """``env`` in a template. Raises UndefinedError with a sentence where a variable is not set."""

    def __call__(self, name: str, default: Any = _REQUIRED) -> Any:
        found = os.environ.get(name, default)
        if found is _REQUIRED:
            raise UndefinedError(_not_set(name))
        return found

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("jinja", "__")):  # jinja looks for marks of its own
            raise AttributeError(name)
        found = os.environ.get(name)
        return _Unset(hint=_not_set(name)) if found is None else found


def _not_set(name: str) -> str:
    return (
        f"the environment variable {name} is not set; set it, or give a default: "
        f"{{{{ env('{name}', 'default') }}}}"
    )


def resolve(values: Any, scope: Mapping[str, Any]) -> tuple[Any, dict[KeyPath, str]]:
    """(the values with every template resolved, what is wrong by key path).

    A template that cannot be resolved stays in the values as it is written.
    """
    names = {**scope, "env": EnvironmentVariables()}
    jinja = Environment(undefined=_Unset, autoescape=False)
    problems: dict[KeyPath, str] = {}

    def walk(value: Any, path: KeyPath) -> Any:
        if isinstance(value, Mapping):
            return {key: walk(part, (*path, key)) for key, part in value.items()}
        if isinstance(value, list | tuple):
            return [walk(part, (*path, index)) for index, part in enumerate(value)]
        if not isinstance(value, str) or not any(mark in value for mark in _MARKS):
            return value
        try:
            return _rendered(jinja, value, names)
        except UndefinedError as error:
            known = ", ".join(sorted(names))
            said = error.message or "it holds a name that is not defined"
            problems[path] = said if "; " in said else f"{said}; known are {known}"
        except TemplateError as error:
            problems[path] = f"not a template: {error.message}"
        except Exception as error:  # noqa: BLE001 - a template may call the user's own functions
            problems[path] = f"the template raised {type(error).__name__}: {error}"
        return value

    return walk(values, ()), problems


def _rendered(jinja: Environment, text: str, names: Mapping[str, Any]) -> Any:
    one = _ONE_EXPRESSION.fullmatch(text)
    if one is None:
        return jinja.from_string(text).render(**names)
    found = jinja.compile_expression(one[1], undefined_to_none=False)(**names)
    if isinstance(found, Undefined):
        str(found)  # raises, with its sentence
    return found
