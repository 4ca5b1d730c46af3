"""``Agent``: what an author declares, checked when it is made."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings
from pydantic_core import PydanticSerializationError, to_jsonable_python

from runfold.core.decisions import Planner, tool_calling
from runfold.core.payload import canonical_json
from runfold.core.versions import DEFAULT_POLICY, PARTS
from runfold.sdk.calls import AnyTool
from runfold.sdk.errors import DefinitionError
from runfold.sdk.tools import Tool

_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_SECRET_SETTINGS = ("extra_headers", "extra_body")


class Agent:
    """An agent of an app.

    Args:
        name: 1 to 100 letters, digits, '.', '_' and '-'; inputs name it.
        model: A pydantic-ai model name (``provider:model``, resolved by the executor when it is first asked) or a
            ``Model`` object.
        instructions: What the model is told before the messages; may be empty.
        tools: Functions declared with ``@tool``.
        model_settings: pydantic-ai's ``ModelSettings``. Recorded with each call, except the values of
            ``extra_headers`` and ``extra_body``, which may be secrets.
        input_type: Later.
        first_message: From a run's input (a JSON value) to the first user message. Default: a string as it is,
            anything else as JSON.
        planner: A pure function of ``core.state.State`` giving ``CallModel``, ``Finish`` or ``Fail``; asked whenever
            a turn is closed. Default: ask the model until it asks for no tool.
        on_version_change: Part (revision, prompt, tools, model) -> ``accept``, ``refuse`` or, for tools,
            ``compatible``; what is left out keeps its default.
        limits: Later.

    Raises:
        DefinitionError: Whatever is wrong, with the mend.
    """

    def __init__(  # noqa: PLR0913 - the contract's options
        self,
        name: str,
        *,
        model: str | Model,
        instructions: str,
        tools: Sequence[Callable[..., Any]] = (),
        model_settings: ModelSettings | None = None,
        input_type: None = None,
        first_message: Callable[[Any], str] | None = None,
        planner: Planner | None = None,
        on_version_change: Mapping[str, str] | None = None,
        limits: None = None,
    ) -> None:
        self.name = _checked_name(name)
        self.model = _checked_model(name, model)
        self.instructions = _checked(name, "instructions", instructions, str, "a text, which may be empty")
        self.tools = _checked_tools(name, tools)
        self.model_settings = model_settings
        self.recorded_settings = _recorded_settings(name, model_settings)
        _refuse_later(name, "input_type", input_type)
        _refuse_later(name, "limits", limits)
        self.first_message = _checked_function(name, "first_message", first_message)
        self.planner: Planner = _checked_function(name, "planner", planner) or tool_calling
        self.policy = _checked_policy(name, on_version_change, has_planner=planner is not None)

    def __repr__(self) -> str:
        return f"<agent {self.name}: {self.model_identity}, {len(self.tools)} tools>"

    @property
    def model_identity(self) -> str:
        """What the version gate compares: the name as it was given, or an object's ``system:model_name``."""
        return self.model if isinstance(self.model, str) else f"{self.model.system}:{self.model.model_name}"

    def opening(self, input_json: bytes) -> str:
        """Make the first user message of a run from its input."""
        value = json.loads(input_json)
        if self.first_message is None:
            return value if isinstance(value, str) else canonical_json(value).decode()
        text: object = self.first_message(value)
        if not isinstance(text, str):
            message = f"first_message of agent {self.name!r} must return a str, not {type(text).__name__}"
            raise TypeError(message)
        return text


def _checked_name(name: object) -> str:
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    message = f"an agent cannot be called {name!r}: use 1 to 100 letters, digits, '.', '_' and '-'"
    raise DefinitionError(message)


def _checked_model(name: str, model: object) -> str | Model:
    if isinstance(model, Model) or (isinstance(model, str) and model):
        return model
    message = (
        f"agent {name!r}: model is a pydantic-ai model name such as 'openai:gpt-5', or a pydantic_ai.models.Model, "
        f"not {model!r}"
    )
    raise DefinitionError(message)


def _checked(name: str, option: str, value: Any, wanted: type, said: str) -> Any:  # noqa: ANN401 - checked here
    if not isinstance(value, wanted):
        message = f"agent {name!r}: {option} is {said}, not {value!r}"
        raise DefinitionError(message)
    return value


def _checked_function(name: str, option: str, value: Any) -> Any:  # noqa: ANN401 - checked here
    if value is not None and not callable(value):
        message = f"agent {name!r}: {option} is a function, not {value!r}"
        raise DefinitionError(message)
    return value


def _checked_tools(name: str, tools: Any) -> tuple[AnyTool, ...]:  # noqa: ANN401 - checked here
    if isinstance(tools, str) or not isinstance(tools, Sequence):
        message = f"agent {name!r}: tools is a list of functions declared with @tool, not {tools!r}"
        raise DefinitionError(message)
    found: dict[str, AnyTool] = {}
    for one in tools:
        if not isinstance(one, Tool):
            message = f"agent {name!r}: {getattr(one, '__name__', one)!r} is no tool: put @tool(recovery=...) above it"
            raise DefinitionError(message)
        if one.name in found:
            message = f"agent {name!r} has two tools called {one.name!r}: rename one of the functions"
            raise DefinitionError(message)
        found[one.name] = one
    return tuple(found.values())


def _recorded_settings(name: str, settings: Any) -> dict[str, Any]:  # noqa: ANN401 - checked here
    if settings is not None and not isinstance(settings, Mapping):
        message = f"agent {name!r}: model_settings is pydantic-ai's ModelSettings (a mapping), not {settings!r}"
        raise DefinitionError(message)
    kept: dict[str, Any] = dict(settings or {})
    for secret in _SECRET_SETTINGS:
        if isinstance(kept.get(secret), Mapping):
            kept[secret] = sorted(kept[secret])
    try:
        recorded: dict[str, Any] = json.loads(canonical_json(to_jsonable_python(kept)))
    except (PydanticSerializationError, ValueError, TypeError) as error:
        message = f"agent {name!r}: model_settings have to be recorded as JSON, and this one cannot be: {error}"
        raise DefinitionError(message) from error
    return recorded


def _refuse_later(name: str, option: str, value: object) -> None:
    if value is not None:
        message = f"agent {name!r}: {option} is not supported yet (it comes in a later version): leave it out"
        raise DefinitionError(message)


def _checked_policy(name: str, given: Any, *, has_planner: bool) -> dict[str, str]:  # noqa: ANN401 - checked here
    policy = dict(DEFAULT_POLICY)
    if has_planner:
        policy["revision"] = "refuse"
    if given is None:
        return policy
    if not isinstance(given, Mapping):
        message = f"agent {name!r}: on_version_change maps parts to rules, it is not {given!r}"
        raise DefinitionError(message)
    for part, rule in given.items():
        rules = ("accept", "refuse", "compatible") if part == "tools" else ("accept", "refuse")
        if part not in PARTS:
            message = f"agent {name!r}: on_version_change names {part!r}; the parts are {', '.join(PARTS)}"
            raise DefinitionError(message)
        if callable(rule):
            message = f"agent {name!r}: a migration function for {part!r} is not supported yet: use one of {rules}"
            raise DefinitionError(message)
        if rule not in rules:
            message = f"agent {name!r}: on_version_change[{part!r}] is one of {', '.join(rules)}, not {rule!r}"
            raise DefinitionError(message)
        policy[part] = rule
    return policy
