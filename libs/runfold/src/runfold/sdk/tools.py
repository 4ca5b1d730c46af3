"""``@tool``: what an author says of a function, checked at once."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar, cast

from pydantic_ai import Tool as ModelTool

from runfold.core.events import Recovery
from runfold.core.payload import canonical_json
from runfold.ports.agents import ToolSpec
from runfold.sdk.encoding import Encoder
from runfold.sdk.errors import DefinitionError
from runfold.sdk.signature import Shape, model_tool, require_same, shape_of

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_MAX_TIMEOUT_S = 7 * 24 * 3600.0
_UNSAID = cast("Recovery", None)
_CLASSES = (
    "Recovery.RERUN (run it again freely: it only reads), Recovery.KEYED (the downstream refuses a second effect with "
    "the same key), Recovery.LOOKUP (ask by key first), Recovery.MANUAL (a person decides)"
)


class Asked:
    """A lookup or an approval function of a tool."""

    def __init__(self, function: Callable[..., Any], shape: Shape, owner: str) -> None:
        self.function = function
        self.shape = shape
        self.owner = owner


class Tool(Generic[P, R]):
    """An author's function with what the runtime has to know of it. Calling it calls the function.

    Attributes:
        function: The author's function; ``shape``: its parameters without the context.
        schema: pydantic-ai's tool: description, JSON schema, validator.
        encoder: For what it returns; ``lookup_encoder``: for what its lookup returns.
    """

    def __init__(self, function: Callable[P, R], spec: ToolSpec, *, needs_approval: bool) -> None:
        self.function = function
        self.name = spec.name
        self.recovery = spec.recovery
        self.timeout_ms = spec.timeout_ms
        self.retries = spec.retries
        self.sequential = spec.sequential
        self.needs_approval = needs_approval
        self.shape = shape_of(function, f"tool {self.name!r}")
        self.schema: ModelTool[Any] = model_tool(function, self.name, self.shape)
        self.encoder = Encoder(self.shape.returns, f"tool {self.name!r}")
        self.lookup_encoder = self.encoder
        self.lookup_function: Asked | None = None
        self.approval_function: Asked | None = None
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the author's function, for the author's own tests."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.name} {self.recovery}>"

    def lookup(self, function: F) -> F:
        """Decorate the function that is asked when an outcome is unknown.

        It takes the tool's parameters and returns the result, or ``ABSENT``, or raises ``Indeterminate``.

        Raises:
            DefinitionError: The class is not LOOKUP, there is one already, or the parameters differ.
        """
        if self.recovery is not Recovery.LOOKUP:
            message = (
                f"tool {self.name!r} has recovery {self.recovery}, which never asks a lookup: "
                "say recovery=Recovery.LOOKUP, or remove the lookup"
            )
            raise DefinitionError(message)
        self.lookup_function = self._asked("lookup", self.lookup_function, function)
        self.lookup_encoder = Encoder(self.lookup_function.shape.returns, self.lookup_function.owner)
        return function

    def approval(self, function: F) -> F:
        """Decorate the function that says whether a call needs an approval: an ``Approval``, or None.

        Raises:
            DefinitionError: The tool always needs one, there is one already, or the parameters differ.
        """
        if self.needs_approval:
            message = (
                f"tool {self.name!r} has needs_approval=True and an approval function: "
                "remove needs_approval and let the function decide"
            )
            raise DefinitionError(message)
        self.approval_function = self._asked("approval function", self.approval_function, function)
        return function

    def _asked(self, role: str, earlier: Asked | None, function: Callable[..., Any]) -> Asked:
        if earlier is not None:
            message = f"tool {self.name!r} has a {role} already ({earlier.function.__name__}): keep one"
            raise DefinitionError(message)
        owner = f"the {role} of tool {self.name!r}"
        shape = shape_of(function, owner)
        require_same(self.name, self.shape, role, shape)
        return Asked(function, shape, owner)

    @property
    def spec(self) -> ToolSpec:
        """What the runtime has to know."""
        return ToolSpec(
            name=self.name,
            recovery=self.recovery,
            timeout_ms=self.timeout_ms,
            retries=self.retries,
            sequential=self.sequential,
            has_gate=self.gate != "none",
            has_lookup=self.lookup_function is not None,
        )

    @property
    def gate(self) -> str:
        """``always``, ``asked`` (by the approval function) or ``none``."""
        if self.needs_approval:
            return "always"
        return "none" if self.approval_function is None else "asked"

    def identity(self) -> list[Any]:
        """What makes it the same tool for a run that has called it; JSON."""
        definition = self.schema.tool_def
        return [
            self.name,
            definition.description,
            definition.parameters_json_schema,
            str(self.recovery),
            self.gate,
            self.sequential,
        ]

    def signature(self) -> str:
        """The sha256 of its identity, in hex."""
        return hashlib.sha256(canonical_json(self.identity())).hexdigest()

    def check_complete(self) -> None:
        """Check what can only be known once the module is imported.

        Raises:
            DefinitionError: LOOKUP without a lookup function.
        """
        if self.recovery is Recovery.LOOKUP and self.lookup_function is None:
            message = (
                f"tool {self.name!r} has recovery LOOKUP and no lookup function: write one with the same parameters "
                f"under @{self.name}.lookup (it returns the result, ABSENT, or raises Indeterminate)"
            )
            raise DefinitionError(message)


def tool(
    function: None = None,
    /,
    *,
    recovery: Recovery = _UNSAID,
    timeout: float = 60.0,
    retries: int = 2,
    sequential: bool = False,
    needs_approval: bool = False,
) -> Callable[[Callable[P, R]], Tool[P, R]]:
    """Declare a function as a tool: ``@tool(recovery=...)`` above a ``def`` or an ``async def``.

    Its docstring and signature make the schema that the model sees: write what it does, and a type for each
    parameter. A first parameter ``ctx: ToolContext[Deps]`` is not part of it. It returns any value that pydantic can
    write as JSON, or a ``Result`` (what the model sees instead, state changes).

    Args:
        function: Nothing; ``@tool`` without parentheses is an error that says what is missing.
        recovery: What to do when nobody knows whether it happened; it has no default, the author says it.
            ``Recovery.RERUN``: run it again freely, it only reads. ``Recovery.KEYED``: run it again with the same
            ``ctx.idempotency_key``, which the downstream honours. ``Recovery.LOOKUP``: ask the function under
            ``@<tool>.lookup`` first. ``Recovery.MANUAL``: a person decides (``runfold resolve``).
        timeout: Seconds for one execution, more than 0.
        retries: Further attempts after an unknown outcome (RERUN, KEYED).
        sequential: Of one completion's calls, none runs beside this one.
        needs_approval: A person has to approve every call; ``.approval`` decides call by call instead.

    Raises:
        DefinitionError: Whatever is wrong, at import.
    """
    if cast("object", function) is not None:
        name = getattr(function, "__name__", function)
        message = (
            f"tool {name!r}: write @tool(recovery=...), not @tool: say what to do when nobody knows whether it "
            f"happened, one of {_CLASSES}"
        )
        raise DefinitionError(message)

    def declare(function: Callable[P, R]) -> Tool[P, R]:
        if isinstance(function, Tool):
            message = f"tool {function.name!r} is declared twice: one @tool is enough"
            raise DefinitionError(message)
        name = str(getattr(function, "__name__", function))
        if _NAME.fullmatch(name) is None:
            message = (
                f"a tool cannot be called {name!r}: providers take 1 to 64 letters, digits, '_' and '-', "
                "beginning with a letter or '_'; rename the function"
            )
            raise DefinitionError(message)
        _check(name, recovery, timeout, retries, sequential=sequential, needs_approval=needs_approval)
        spec = ToolSpec(
            name=name,
            recovery=recovery,
            timeout_ms=max(1, round(timeout * 1000)),
            retries=retries,
            sequential=sequential,
            has_gate=needs_approval,
            has_lookup=False,
        )
        return Tool(function, spec, needs_approval=needs_approval)

    return declare


def _check(
    name: str, recovery: object, timeout: object, retries: object, *, sequential: object, needs_approval: object
) -> None:
    if not isinstance(recovery, Recovery):
        said = "says no recovery" if recovery is None else f"has recovery {recovery!r}"
        message = f"tool {name!r} {said}: say what to do when nobody knows whether it happened, one of {_CLASSES}"
        raise DefinitionError(message)
    if recovery is Recovery.TRANSACTIONAL:
        message = f"tool {name!r}: Recovery.TRANSACTIONAL is not supported yet; use one of {_CLASSES}"
        raise DefinitionError(message)
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool) and math.isfinite(timeout)
    if not is_number or not 0 < cast("float", timeout) <= _MAX_TIMEOUT_S:
        message = f"tool {name!r}: timeout is in seconds, more than 0 and at most {_MAX_TIMEOUT_S:.0f}, not {timeout!r}"
        raise DefinitionError(message)
    if not isinstance(retries, int) or isinstance(retries, bool) or retries < 0:
        message = f"tool {name!r}: retries is a whole number from 0 on, not {retries!r}"
        raise DefinitionError(message)
    for option, value in (("sequential", sequential), ("needs_approval", needs_approval)):
        if not isinstance(value, bool):
            message = f"tool {name!r}: {option} is True or False, not {value!r}"
            raise DefinitionError(message)
