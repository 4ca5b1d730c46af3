"""`python -m bench.codec [--source TYPE]`: processor time of the log's codec, a JSON object a line; needs no server.

Microseconds a record, on average over one example of each type: written and read by compiled code, and by fastavro
with dictionaries in between, as everything once was; and a header read and compared with its record. The best
of nine repeats, since other processes can only add. `--source tool_returned` prints the compiled code instead.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from golden_examples import examples
from runfold.codec import log
from runfold.codec.compiled import Codec
from runfold.core.fence import Head

_REPEATS: Final = 9
_ROUNDS: Final = 100


def main(arguments: Sequence[str]) -> int:
    """Measure, or print the code of one type."""
    parser = argparse.ArgumentParser(prog="python -m bench.codec", description=__doc__)
    parser.add_argument("--source", metavar="TYPE", choices=sorted(log.RECORD_TYPES))
    name: str | None = parser.parse_args(arguments).source
    if name is not None:
        for schema, codec in log.codecs()[name].items():
            print(f"# {schema.name}\n{codec.source}\n")
        return 0
    records = examples()
    values = [log.encode(record)[1] for record in records]
    codecs = [_codec_of(value) for value in values]
    heads = [log.encode(record)[0] for record in records]
    measured = {
        "encode": _microseconds(log.encode, records),
        "encode_fastavro": _microseconds(
            lambda pair: pair[0].write_generally(pair[1]), list(zip(codecs, records, strict=True))
        ),
        "decode": _microseconds(log.decode, values),
        "decode_fastavro": _microseconds(
            lambda pair: pair[0].read_generally(pair[1]), list(zip(codecs, values, strict=True))
        ),
        "header": _microseconds(_judge, list(zip(heads, records, strict=True))),
    }
    for what, microseconds in measured.items():
        print(json.dumps({"what": what, "us": round(microseconds, 2)}))
    return 0


def _codec_of(value: bytes) -> Codec:
    """Find the codec whose schema wrote a value."""
    known = [codec for codecs in log.codecs().values() for codec in codecs.values()]
    return next(codec for codec in known if value.startswith(codec.schema.prefix))


def _judge(pair: tuple[bytes, Any]) -> None:
    """Do what a reader does with the header of every record."""
    data, record = pair
    log.check_head(Head.decode(data), record)
    log.check_key(log.key_of(record), record)


def _microseconds(function: Callable[[Any], object], arguments: Sequence[Any]) -> float:
    """Call a function with each argument in turn; give the processor time of one call."""
    best = float("inf")
    for _ in range(_REPEATS):
        begun = time.process_time()
        for _ in range(_ROUNDS):
            for argument in arguments:
                function(argument)
        best = min(best, time.process_time() - begun)
    return best / (_ROUNDS * len(arguments)) * 1e6


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
