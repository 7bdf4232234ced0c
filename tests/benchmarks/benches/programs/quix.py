"""The two jobs in Quix Streams, exactly once: RocksDB state with a changelog topic."""

from __future__ import annotations

import argparse
from typing import Any

from answers import balance, enrich  # type: ignore[import-not-found]  # next to this script
from quixstreams import Application, State


def update(payment: Any, state: State) -> Any:
    total, found = balance(state.get("total"), payment)
    state.set("total", total)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--kafka", "--source", "--sink", "--group", "--job", "--state"):
        parser.add_argument(name, required=True)
    parser.add_argument("--commit", type=float, required=True, help="seconds between commits")
    options = parser.parse_args()
    application = Application(
        broker_address=options.kafka,
        consumer_group=options.group,
        processing_guarantee="exactly-once",
        commit_interval=options.commit,
        auto_offset_reset="earliest",
        state_dir=options.state,
        loglevel="WARNING",
    )
    payments = application.dataframe(application.topic(options.source, value_deserializer="json"))
    if options.job == "balances":
        answers = payments.apply(update, stateful=True)
    else:
        answers = payments.apply(enrich).filter(lambda found: found is not None)
    answers.to_topic(application.topic(options.sink, value_serializer="json"))
    application.run()


if __name__ == "__main__":
    main()
