"""``@tool``: what an author says of a function, checked at once."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, ParamSpec, TypeVar, cast, overload

from pydantic_ai import Tool as ModelTool

from runfold.core.events import Recovery
from runfold.core.payload import canonical_json
from runfold.core.policy import LOOKUP_TRIES
from runfold.ports.agents import ToolSpec
from runfold.sdk import options
from runfold.sdk.encoding import Encoder
from runfold.sdk.errors import DefinitionError
from runfold.sdk.signature import Shape, model_tool, require_same, shape_of

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_UNSAID = cast("Recovery", None)


@dataclass(slots=True)
class Asked:
    """A lookup or an approval function of a tool; ``timeout_s`` and ``tries`` are a lookup's."""

    function: Callable[..., Any]
    shape: Shape
    owner: str
    timeout_s: float | None = None
    tries: int = LOOKUP_TRIES


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
        self.sequential = spec.sequential
        self.needs_approval = needs_approval
        self._spec = spec
        self.shape = shape_of(function, f"tool {self.name!r}")
        if self.recovery is Recovery.TRANSACTIONAL and not self.shape.is_async:
            message = (
                f"tool {self.name!r} is TRANSACTIONAL and must be `async def`: a thread cannot be stopped at its "
                "time-out, so its transaction could neither be committed nor given up"
            )
            raise DefinitionError(message)
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

    @overload
    def lookup(self, function: F, /) -> F: ...
    @overload
    def lookup(self, /, *, timeout: float | None = None, tries: int = LOOKUP_TRIES) -> Callable[[F], F]: ...

    def lookup(
        self, function: F | None = None, /, *, timeout: float | None = None, tries: int = LOOKUP_TRIES
    ) -> F | Callable[[F], F]:
        """Decorate the function that is asked when an outcome is unknown.

        It takes the tool's parameters and returns the result, or ``ABSENT``, or raises ``Indeterminate``.
        ``@<tool>.lookup`` and ``@<tool>.lookup(timeout=5.0, tries=5)`` are both right.

        Args:
            function: The lookup; nothing where options are given.
            timeout: Seconds for one lookup; None: the tool's own for the live owner, 30 for the reconciler.
            tries: How many may fail, or not know, before a person is asked.

        Raises:
            DefinitionError: The class is not LOOKUP, there is one already, or parameters or options are wrong.
        """
        if self.recovery is not Recovery.LOOKUP:
            message = (
                f"tool {self.name!r} has recovery {self.recovery}, which never asks a lookup: "
                "say recovery=Recovery.LOOKUP, or remove the lookup"
            )
            raise DefinitionError(message)
        options.check_lookup(self.name, timeout, tries)

        def declare(given: F) -> F:
            self.lookup_function = self._asked("lookup", self.lookup_function, given)
            self.lookup_function.timeout_s, self.lookup_function.tries = timeout, tries
            self.lookup_encoder = Encoder(self.lookup_function.shape.returns, self.lookup_function.owner)
            return given

        return declare if function is None else declare(function)

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
        asked = self.lookup_function
        timeout_s = None if asked is None else asked.timeout_s
        return replace(
            self._spec,
            has_gate=self.gate != "none",
            has_lookup=asked is not None,
            lookup_timeout_ms=None if timeout_s is None else options.milliseconds(timeout_s),
            lookup_tries=LOOKUP_TRIES if asked is None else asked.tries,
        )

    @property
    def is_kept(self) -> bool:
        """Whether the effects table keeps what became of its calls."""
        return self.recovery is Recovery.TRANSACTIONAL or self._spec.dedupe

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


def tool(  # noqa: PLR0913 - one per thing that an author may say of a tool
    function: None = None,
    /,
    *,
    recovery: Recovery = _UNSAID,
    timeout: float = 60.0,
    retries: int = 2,
    sequential: bool = False,
    needs_approval: bool = False,
    key_ttl: float | None = None,
    settle: float | None = None,
    dedupe: bool = False,
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
            ``@<tool>.lookup`` first. ``Recovery.TRANSACTIONAL``: it writes through ``ctx.connection``, in one
            transaction with its key. ``Recovery.MANUAL``: a person decides (``runfold resolve``).
        timeout: Seconds for one execution, more than 0.
        retries: Further attempts after an unknown outcome (not for MANUAL, nor for a call that ``dedupe`` saw begin).
        sequential: Of one completion's calls, none runs beside this one.
        needs_approval: A person has to approve every call; ``.approval`` decides call by call instead.
        key_ttl: Seconds for which the downstream remembers a key (KEYED, LOOKUP), from the step's first request on;
            None: for ever. After it, neither running again nor "absent" proves anything: a person decides.
        settle: Seconds after a call's end in which the lookup may still miss it (LOOKUP): ``ABSENT`` is believed only
            after them.
        dedupe: The downstream knows no keys (KEYED): Runfold's effects table stands in for its memory.

    Raises:
        DefinitionError: Whatever is wrong, at import.
    """
    if cast("object", function) is not None:
        name = getattr(function, "__name__", function)
        message = (
            f"tool {name!r}: write @tool(recovery=...), not @tool: say what to do when nobody knows whether it "
            f"happened, one of {options.CLASSES}"
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
        options.check(name, recovery, timeout, retries)
        options.check_flags(name, sequential=sequential, needs_approval=needs_approval, dedupe=dedupe)
        options.check_memory(name, recovery, timeout, key_ttl=key_ttl, settle=settle, dedupe=dedupe)
        spec = ToolSpec(
            name=name,
            recovery=recovery,
            timeout_ms=options.milliseconds(timeout),
            retries=retries,
            sequential=sequential,
            has_gate=needs_approval,
            has_lookup=False,
            key_ttl_ms=None if key_ttl is None else options.milliseconds(key_ttl),
            settle_ms=None if settle is None else options.milliseconds(settle),
            dedupe=dedupe,
        )
        return Tool(function, spec, needs_approval=needs_approval)

    return declare
