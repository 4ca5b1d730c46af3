"""All ports in memory: one ``MemoryBroker`` stands for Kafka and is shared by the "processes" of a test.

Purely asyncio: no threads, no clock but the event loop's, so the whole can run on a virtual one.
"""

from runfold.adapters.memory.blobs import MemoryBlobs
from runfold.adapters.memory.broker import MemoryBroker, Stored
from runfold.adapters.memory.clock import LoopClock, SeededChance
from runfold.adapters.memory.dead import MemoryDeadLetters
from runfold.adapters.memory.effects import MemoryEffects, MemoryEffectsDatabase
from runfold.adapters.memory.inputs import MemoryInputs
from runfold.adapters.memory.log import MemoryLog
from runfold.adapters.memory.membership import MemoryGroup, MemoryMembership
from runfold.adapters.memory.publisher import MemoryPublisher

__all__ = [
    "LoopClock",
    "MemoryBlobs",
    "MemoryBroker",
    "MemoryDeadLetters",
    "MemoryEffects",
    "MemoryEffectsDatabase",
    "MemoryGroup",
    "MemoryInputs",
    "MemoryLog",
    "MemoryMembership",
    "MemoryPublisher",
    "SeededChance",
    "Stored",
]
