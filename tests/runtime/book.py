"""What a downstream that knows keys remembers, for the tests of the runtime."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass
class KeyedBook:
    """Calls and results by key."""

    effects: Counter[str] = field(default_factory=Counter)
    results: dict[str, Any] = field(default_factory=dict)

    def apply(self, key: str, value: Any) -> Any:
        """Perform an effect; a key seen before changes nothing (KEYED downstreams)."""
        self.effects[key] += 1
        return self.results.setdefault(key, value)
