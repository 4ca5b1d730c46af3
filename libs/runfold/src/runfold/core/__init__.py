"""The functional core: given a state, it says what the next event or decision is.

Pure: no clock, no randomness, no identifiers made up here, no I/O. What a function needs is handed in.

Theory of operation:

* ``events``       what can stand in the log, as frozen dataclasses in the past tense
* ``state``        what one run is, folded from its valid events
* ``transitions``  ``fold(state, event)``: every legal transition, in one file
* ``decisions``    ``decide(state)``: what happens next, as data
* ``drafts``       a decision and the facts of the moment -> the events to append
* ``fence``        which records of a partition are valid: the rule every reader applies for ever
* ``positions``    which inputs of a partition are settled
* ``versions``     the version gate
* ``policy``       back-off, attempts, deadlines
"""
