"""Fixtures for tests of one's own networks: `pytest_plugins = ["conformance.plugin.auditing"]` in a conftest.py."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from conformance.results.audits import Audit
    from conformance.results.predictions import Prediction


@pytest.fixture
def audit() -> "Callable[..., Audit]":
    """The function `conformance.audit.audit`.

    For example::

        def test_my_network_runs_in_int8(audit):
            audited = audit(my_network(), my_batches(), "x86")
            assert audited.integer_share > 0.95 and not audited.blamed
    """
    from conformance.audit import audit

    return audit


@pytest.fixture
def predict() -> "Callable[..., Prediction]":
    """The function `conformance.prediction.predict`.

    For example::

        def test_my_network_would_run_in_int8_on_arm(predict):
            assert predict(my_network(), my_batches(), "qnnpack", platform="aarch64").holds
    """
    from conformance.prediction import predict

    return predict
