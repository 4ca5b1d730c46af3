"""The step executor, as a library. Where to start reading: ``executor`` -> ``partition`` -> ``driver``.

* ``executor``    partitions come and go with the consumer group's assignment
* ``partition``   claim, take over, drive, hand over, claim again: the one recovery path
* ``tenure``      what lives as long as one epoch; ``writer``: its appends, and the proof that it still holds
* ``inputs``      takes a partition's inputs; ``drivers``: the runs in memory, to which it hands them
* ``run``         one run as everything below sees it; ``mailbox``: what it was told; ``batch``: events of one append
* ``driver``      one coroutine a run: take news or an input, decide, ``commit``
* ``rulings``     what becomes of one input; ``outcomes``: what an effect's outcome means
* ``again``, ``kept``  another attempt of a call, or none; calls whose outcome the effects table keeps
* ``version_gate``, ``performing``, ``recovery``   may this code drive it; a decision's events; dangling requests
* ``launch``, ``work``, ``effects``   from a durable request to an effect in flight, which outlives the epoch
"""

from runfold.runtime.executor.executor import Executor
from runfold.runtime.executor.settings import ExecutorSettings

__all__ = ["Executor", "ExecutorSettings"]
