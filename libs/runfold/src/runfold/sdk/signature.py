"""From an author's function to its parameters, its schema and its validator, without the context."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable
from dataclasses import dataclass
from inspect import Parameter, Signature
from types import SimpleNamespace
from typing import Any

from pydantic.errors import PydanticUserError
from pydantic_ai import Tool as ModelTool
from pydantic_ai.exceptions import UserError

from runfold.sdk.context import ToolContext
from runfold.sdk.errors import DefinitionError

_CONTEXT_TEXT = re.compile(r"(?:(?P<path>[\w.]+)\.)?ToolContext(?:\[.*\])?", re.DOTALL)
_MANY = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD, Parameter.POSITIONAL_ONLY)


@dataclass(frozen=True, slots=True)
class Shape:
    """What a function takes and gives.

    Attributes:
        takes_context: Its first parameter is a ``ToolContext``.
        parameters: The others, their annotations resolved.
        returns: The return annotation, resolved; ``Any`` where there is none or it exists for type checkers only.
        is_async: Calling it gives something to await.
    """

    takes_context: bool
    parameters: tuple[Parameter, ...]
    returns: Any
    is_async: bool

    def __str__(self) -> str:
        return str(Signature(list(self.parameters)))


def shape_of(function: Callable[..., Any], owner: str) -> Shape:
    """Read a function's signature.

    Args:
        function: The author's function, async or sync.
        owner: What to call it in error messages.

    Raises:
        DefinitionError: Parameters that a model cannot fill, or annotations that cannot be resolved.
    """
    if not inspect.isfunction(function):
        message = f"{owner} must be a function (def or async def), not {type(function).__name__}"
        raise DefinitionError(message)
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        message = f"{owner} is a generator: return a value instead of yielding"
        raise DefinitionError(message)
    found = list(inspect.signature(function).parameters.values())
    takes_context = bool(found) and _is_context(found[0].annotation, function)
    resolved = tuple(_resolve(one, function, owner) for one in (found[1:] if takes_context else found))
    return Shape(takes_context, resolved, _returns(function), inspect.iscoroutinefunction(function))


def model_tool(function: Callable[..., Any], name: str, shape: Shape) -> ModelTool[Any]:
    """Make the schema and the validator with pydantic-ai's generator.

    It is given a stand-in with the function's documentation and its parameters without the context: a context of
    our own type would otherwise become part of the schema.

    Raises:
        DefinitionError: A parameter type has no schema.
    """

    def stand_in(**_: object) -> None:
        """Never called."""

    stand_in.__name__ = stand_in.__qualname__ = name
    stand_in.__module__ = function.__module__
    stand_in.__doc__ = inspect.getdoc(function)
    stand_in.__annotations__ = {p.name: p.annotation for p in shape.parameters if p.annotation is not Parameter.empty}
    stand_in.__signature__ = Signature(list(shape.parameters))  # type: ignore[attr-defined]  # inspect's own hook
    try:
        return ModelTool(stand_in, takes_ctx=False, name=name)
    except (PydanticUserError, UserError, TypeError, NameError) as error:
        message = (
            f"tool {name!r}: no schema can be made of its parameters {shape}: {str(error).strip()}\n"
            "Use types that pydantic knows, such as str, int, Decimal, a dataclass or a pydantic model"
        )
        raise DefinitionError(message) from error


def require_same(name: str, wanted: Shape, role: str, got: Shape) -> None:
    """Check that a tool's lookup or approval function takes what the tool takes.

    Raises:
        DefinitionError: It does not; the message shows both.
    """
    if [_identity(p) for p in wanted.parameters] != [_identity(p) for p in got.parameters]:
        message = (
            f"the {role} of tool {name!r} takes {got}, the tool takes {wanted}: "
            "give both the same parameters, with the same types and defaults (the context may be left out)"
        )
        raise DefinitionError(message)


def _identity(parameter: Parameter) -> tuple[str, object, str]:
    return parameter.name, parameter.annotation, repr(parameter.default)


def _is_context(annotation: Any, function: Callable[..., Any]) -> bool:  # noqa: ANN401 - an annotation
    if isinstance(annotation, str):
        match = _CONTEXT_TEXT.fullmatch(annotation.strip().strip("\"'"))
        if match is not None:
            return True
        try:  # an alias, such as ``Ctx = ToolContext[Deps]``
            annotation = _evaluate(annotation, function)
        except Exception:  # noqa: BLE001 - whatever it is, it is no context; _resolve reports it
            return False
    return annotation is ToolContext or typing.get_origin(annotation) is ToolContext


def _resolve(parameter: Parameter, function: Callable[..., Any], owner: str) -> Parameter:
    if parameter.kind in _MANY:
        message = (
            f"{owner} has a parameter '{parameter}': a model fills parameters by name, "
            "so name each one (no *args, **kwargs or positional-only parameters)"
        )
        raise DefinitionError(message)
    if parameter.annotation is Parameter.empty:
        return parameter
    try:
        annotation = _evaluate(parameter.annotation, function)
    except Exception as error:
        message = (
            f"{owner}: the type of parameter {parameter.name!r}, {parameter.annotation!r}, cannot be resolved "
            f"({type(error).__name__}: {error}): import it where the module runs, not only under TYPE_CHECKING"
        )
        raise DefinitionError(message) from error
    if annotation is ToolContext or typing.get_origin(annotation) is ToolContext:
        message = f"{owner}: the ToolContext must be the first parameter, {parameter.name!r} is not"
        raise DefinitionError(message)
    return parameter.replace(annotation=annotation)


def _returns(function: Callable[..., Any]) -> Any:  # noqa: ANN401 - an annotation
    annotation = inspect.signature(function).return_annotation
    if annotation is Signature.empty:
        return Any
    try:
        return _evaluate(annotation, function)
    except NameError:
        return Any


def _evaluate(annotation: Any, function: Callable[..., Any]) -> Any:  # noqa: ANN401 - annotations
    """Resolve one annotation in the function's module; names of the enclosing function as far as it keeps them."""
    holder = SimpleNamespace(__annotations__={"it": annotation})
    local = inspect.getclosurevars(function).nonlocals
    return typing.get_type_hints(holder, function.__globals__, dict(local), include_extras=True)["it"]
