"""Trusted configs as modules of plain torch."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path

from torch.ao.quantization.backend_config import DTypeConfig

from conformance.audit.auditing import NATIVE_ENGINES
from conformance.cases.claims import BackendClaims
from conformance.configs.names import operator_named
from conformance.configs.registry import BACKENDS
from conformance.errors import UsageError
from conformance.repair.rewrites import REWRITES
from conformance.repro.configs import pattern_source
from conformance.repro.inline import standalone
from conformance.results.known import KnownFinding
from conformance.templates import source_templates

from .promises import LeftOut, Trusted, TrustedRule

WIDTH = 118
MODULES = (
    *("conformance.trusted.avoiding", "conformance.audit.features", "conformance.audit.options"),
    "conformance.audit.values",
    *("conformance.configs.names", "conformance.repair.rewrites", "conformance.results.causes"),
)
"""The modules whose definitions are inlined, one after those that it imports."""


def module(made: Trusted, findings: Mapping[str, KnownFinding], *, path: Path, date: str) -> str:
    """The source of a module with the config, for a file at `path`. `findings` are those of the ledger by id."""
    native = made.engine in NATIVE_ENGINES
    templates = source_templates(__package__)
    body = templates.get_template("body.j2").render(
        engine=made.engine,
        native=native,
        imports=_imports(made.left_out),
        declared=textwrap.indent(_declared(made.claims), 4 * " "),
        left_out=[*_left_out(made.left_out, findings)],
        rules=[_rule(rule, findings) for rule in made.rules],
        promised=_words("PROMISED", made.promised),
        fixed=_words("FIXED", made.fixed),
        sharing=_words("SHARING", made.sharing),
    )
    return templates.get_template("trusted.j2").render(
        engine=made.engine,
        backend=made.claims.name,
        module=path.stem,
        registered=made.claims.name in BACKENDS,
        native=native,
        torch=made.host.torch,
        platform=made.host.platform,
        date=date,
        kept=len(made.kept),
        claims=len(made.claims.claims),
        remaining=[*_remaining(made, findings)],
        source=standalone(body, MODULES),
    )


def _declared(claims: BackendClaims) -> str:
    """The lines that bind `backend_config`: the registered configs are torch's."""
    return f"backend_config = get_{claims.name}_backend_config()" if claims.name in BACKENDS else claims.source


def _imports(claims: Iterable[LeftOut]) -> list[str]:
    """The modules of operators that are not torch's. Raises UsageError for an operator that cannot be imported."""
    modules = set()
    for name in {name for one in claims for name in one.claim.operators}:
        try:
            modules.add(operator_named(name)[1])
        except LookupError as error:
            raise UsageError(f"the module cannot name an operator of the config: {error}") from error
    return sorted(modules - {""})


def _left_out(claims: Iterable[LeftOut], findings: Mapping[str, KnownFinding]) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the entries that are left out by what is wrong: comments, and lines of a table."""

    def wrong(one: LeftOut) -> str:
        known = findings.get(one.finding)
        upstream = f" ({known.upstream})" if known and "#" in known.upstream else ""
        return f"{one.finding}{upstream}: {known.title}" if known else one.status.phrase

    for reason, members in groupby(sorted(claims, key=wrong), key=wrong):
        lines = [f"({_pattern(one)}, {_dtypes(one.claim.dtypes)}),  # {one.status.phrase}" for one in members]
        yield textwrap.wrap(reason, WIDTH), lines


def _pattern(left: LeftOut) -> str:
    entry = left.claim.entry
    complex_format = entry._pattern_complex_format
    return pattern_source(entry.pattern if complex_format is None else complex_format)


def _dtypes(config: DTypeConfig) -> str:
    dtypes = (config.input_dtype, config.output_dtype, config.weight_dtype, config.bias_dtype, config.is_dynamic)
    return f"({', '.join(map(str, dtypes))})"


def _rule(rule: TrustedRule, findings: Mapping[str, KnownFinding]) -> tuple[list[str], str]:
    """A rule with the title of its finding, which a ledger of others may lack, and its source."""
    conditions = ", ".join(f"{name!r}: {list(of)!r}" for name, of in rule.conditions.items())
    rewritings = "".join(f"{REWRITES[kind].__name__}, " for kind in rule.remedies)
    known = findings.get(rule.finding)
    return textwrap.wrap(
        known.title, WIDTH
    ) if known else [], f"({rule.finding!r}, {{{conditions}}}, ({rewritings.strip()})),"


def _words(name: str, values: Iterable[str]) -> str:
    lines = textwrap.wrap(", ".join(map(repr, values)), WIDTH - 4)
    return f"{name} = frozenset([\n" + "".join(f"    {line}\n" for line in lines) + "])"


def _remaining(made: Trusted, findings: Mapping[str, KnownFinding]) -> Iterator[str]:
    for finding in made.remaining:
        yield from textwrap.wrap(f"- {finding}: {findings[finding].title}", WIDTH, subsequent_indent="  ")
