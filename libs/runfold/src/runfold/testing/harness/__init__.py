"""The author's harness: see ``harness.Harness`` and docs/testing.md.

* ``harness``   ``Harness``, what an author calls
* ``engine``    the runtime of one harness: cluster, crashes, waiting
* ``loop``      the loop that it runs on, and how calls from another loop reach it
* ``traps``     crashes at an event
* ``journal``   what was called of the author's code; ``watching``: who notes it
* ``ledger``    what the log says
"""
