"""The table of layers in use."""

from dataclasses import replace

from audited import clean

from conformance.results.audits import Arithmetic, Audit, Layer
from conformance.results.in_use import layers_in_use, lines, read


def test_equal_layers_are_counted_together() -> None:
    audit = replace(clean(), engine="x86")
    found = layers_in_use([audit, replace(audit, network="another")])
    assert sum(one.occurrences for one in found) == 2 * len(audit.computing)
    assert {len(one.networks) for one in found} == {2}


def test_one_engine_is_counted() -> None:
    assert layers_in_use([replace(clean(), engine="onednn")]) == []


def test_neighbours_are_those_that_compute() -> None:
    first, last = (
        Layer(name, f"nn.{name}", None, Arithmetic.INTEGER, inputs=inputs)
        for name, inputs in (("A", ()), ("B", ("view",)))
    )
    between = Layer("view", "torch.flatten", None, Arithmetic.VIEW, inputs=("A",))
    one, other = layers_in_use([Audit("network", "x86", "fbgemm", (first, between, last))])
    assert (one.producers, one.consumers) == ((), ("nn.B",))
    assert (other.producers, other.consumers) == (("nn.A",), ())


def test_the_committed_table_is_one_that_is_written() -> None:
    table = read()
    assert len(table) > 1000
    assert [*lines(table)] == [*lines(sorted(table, key=table.index))]
    assert len(table[0].networks) >= len(table[-1].networks)
    assert {"nn.Conv2d", "nn.Linear"} <= {one.pattern for one in table}
