"""Predictions of whole networks from the ledger alone: which layers an engine will compute in integers, in float or wrong,
before any kernel runs.

`predict` is the Python interface; `python -m conformance predict` and the pytest fixture `predict` call it.
"""

from .predicting import Predicting, predict

__all__ = ["Predicting", "predict"]
