"""`python -m perseid.testing.verify wordcount --kafka H:P --source T --sink T`: verdict as JSON.

The demo, the benchmarks and the soak run it as a process of its own, so that it shares not even an
interpreter with the engine. Exit code 0: no fault, 1: faults found.
"""

from __future__ import annotations

import argparse
import json
import sys

from perseid.testing.verify import verify_multiset, verify_wordcount


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m perseid.testing.verify", description=__doc__)
    parser.add_argument("check", choices=["wordcount", "multiset"])
    parser.add_argument("--kafka", required=True, help="bootstrap servers")
    parser.add_argument("--source", required=True, help="topic that was read")
    parser.add_argument("--sink", required=True, help="topic that was written")
    parser.add_argument("--column", help="column of the count (n) or of the id (id)")
    options = parser.parse_args(arguments)
    topics = (options.kafka, options.source, options.sink)
    if options.check == "wordcount":
        verdict = verify_wordcount(*topics, column=options.column or "n")
    else:
        verdict = verify_multiset(*topics, column=options.column or "id")
    print(json.dumps(verdict.as_dict()))
    return 0 if verdict.ok else 1


if __name__ == "__main__":
    sys.exit(main())
