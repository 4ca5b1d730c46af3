"""The step executor, as a library. Where to start reading: ``executor`` -> ``partition`` -> ``driver``.

* ``executor``    partitions come and go with the consumer group's assignment
* ``partition``   claim, take over, drive, hand over, claim again: the one recovery path
* ``tenure``      what lives as long as one epoch; ``writer``: its appends, and the proof that it still holds
* ``inputs``      takes a partition's inputs; ``rulings``: what becomes of one
* ``driver``      one coroutine a run; ``batch``: the events that it appends together
* ``gate``        the version gate; ``performing``: from a decision to events; ``recovery``: dangling requests
* ``launch``, ``work``, ``effects``   from a durable request to an effect; ``outcomes``: from its outcome to events
"""

from runfold.runtime.executor.executor import Executor
from runfold.runtime.executor.settings import ExecutorSettings

__all__ = ["Executor", "ExecutorSettings"]
