"""The open turn says the same as a search through all of its calls, whatever was opened and has returned."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from runfold.core.events import AskedCall
from runfold.core.payload import Inline
from runfold.core.state import Call, Phase, Turn

_OPENED = tuple(phase for phase in Phase if phase is not Phase.ASKED)


@given(size=st.integers(1, 6), moves=st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.sampled_from(_OPENED))))
def test_it_says_the_same_as_a_search(size: int, moves: list[tuple[bool, int, Phase]]) -> None:
    """Calls are opened in order, at ascending steps; an opened one takes any phase until it has returned."""
    turn = Turn(Call(AskedCall(f"call-{index}", "t", Inline(b"{}"))) for index in range(size))
    step = opened = 0
    _compare(turn)
    for opens, chosen, phase in moves:
        if opens and opened < size:
            step += 1 + chosen % 2
            turn[opened].step, turn[opened].phase = step, phase
            opened += 1
        elif chosen < opened and turn[chosen].phase is not Phase.RETURNED:
            turn[chosen].phase = phase
        _compare(turn)


def _compare(turn: Turn) -> None:
    asked = [call for call in turn if call.phase is Phase.ASKED]
    assert list(turn.unopened()) == asked
    assert turn.first_unopened() is (asked[0] if asked else None)
    unreturned = [call for call in turn if call.phase not in (Phase.ASKED, Phase.RETURNED)]
    assert turn.unreturned() == unreturned
    assert turn.is_complete == all(call.phase is Phase.RETURNED for call in turn)
    for call in turn:
        assert turn.of(call.asked.tool_call_id) is call
        assert call.step == 0 or turn.at(call.step) is call
    assert turn.of("another") is None
    assert turn.at(10**6) is None
