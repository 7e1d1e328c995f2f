"""`predict`: a network, from the ledger alone."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from .arguments import add_command, add_ledger, add_repeatable, entries_of
from .audits import add_inputs, add_preparation, preparation

if TYPE_CHECKING:
    from .arguments import Commands


def add(commands: "Commands") -> None:
    text = (
        "say from the ledger, before any quantized kernel runs, which layers of a network an engine will compute in "
        "integers, in float or wrong; the exit status is 1 if anything is wrong or refused whatever the data"
    )
    predict = add_command(commands, "predict", predict_command, text)
    predict.add_argument("network", metavar="MODULE:CALLABLE", help="returns the float model, in eval mode")
    add_repeatable(predict, "--engine", "NAME", "one of torch's engines, also one that this machine does not have")
    add_inputs(predict)
    predict.add_argument("--platform", metavar="ARCHITECTURE", help="such as aarch64 (default: this machine)")
    predict.add_argument("--isa", metavar="NAME", help="instruction set of the platform, such as avx2")
    add_preparation(predict)
    predict.add_argument("--json", metavar="FILE", help="write the predictions as JSON")
    add_ledger(predict)


def predict_command(arguments: argparse.Namespace) -> int:
    import torch

    torch.set_num_threads(1)
    from conformance.audit.auditing import DEFAULT_ENGINE
    from conformance.audit.network import loaded
    from conformance.prediction.predicting import Predicting, Shared, host_named
    from conformance.reports.prediction_text import text
    from conformance.results.jsonl import replacing
    from conformance.results.predictions import to_json

    entries = entries_of(arguments.ledger)
    on = host_named(entries, arguments.platform, arguments.isa)
    prepared = preparation(arguments)
    engines = dict.fromkeys(arguments.engine or [DEFAULT_ENGINE])
    ways = [Predicting(name, on, entries, *prepared, bool(arguments.inputs)) for name in engines]
    subject = loaded(arguments.network, arguments.inputs, arguments.shape)
    shared: Shared = {}
    predictions = [way.predict(subject, shared) for way in ways]
    if arguments.json:
        with replacing(Path(arguments.json), "--json") as beside:
            beside.write_text(json.dumps([to_json(one) for one in predictions], indent=1), encoding="utf-8")
    reasons = {entry.id: entry.finding.reason for entry in entries}
    for one in predictions:
        print(text(one, reasons), end="")
    return int(not all(one.holds for one in predictions))
