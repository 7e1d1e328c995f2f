"""`claims`: list the claims of backend configs."""

import argparse
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from .arguments import add_backend_config, add_command, add_operators

if TYPE_CHECKING:
    from conformance.cases.claims import BackendClaims

    from .arguments import Commands


def add(commands: "Commands") -> None:
    claims = add_command(commands, "claims", claims_command, "list the claims of backend configs")
    source = claims.add_mutually_exclusive_group()
    source.add_argument(
        "--backend", action="append", default=[], metavar="NAME", help="list the claims of this backend; repeatable"
    )
    add_backend_config(source, "list the claims of this BackendConfig, or of the one that this callable returns")
    add_operators(claims)
    form = claims.add_mutually_exclusive_group()
    form.add_argument(
        "--json", action="store_true", help="print JSON with the engines of each backend and the runs of each claim"
    )
    form.add_argument("--runs", action="store_true", help="print the runs of each claim, a line for each profile")


def claims_command(arguments: argparse.Namespace) -> int:
    from conformance.cases.claims import backend, third_party
    from conformance.cases.sources import from_signature
    from conformance.configs.registry import BACKENDS

    if arguments.backend_config:
        backends = [third_party(arguments.backend_config)]
    else:
        backends = [backend(name) for name in dict.fromkeys(arguments.backend or BACKENDS)]
    if arguments.json:
        print(json.dumps([describe_claims(claims) for claims in backends], indent=1, ensure_ascii=False))
        return 0
    if arguments.runs:
        from conformance.cases.listing import lines

        for claims in backends:
            print("\n".join(lines(claims)))
        return 0
    for claims in backends:
        print(f"{claims.name}: {claims.patterns} patterns, {len(claims.claims)} claims")
        for claim in claims.claims:
            tried = from_signature(claim)
            print(claim.id + (f" (from the signature of {', '.join(tried)})" if tried else ""))
    return 0


def describe_claims(backend: "BackendClaims") -> dict[str, Any]:
    """Return a backend with its claims as JSON values.

    `covered` is false for a claim with an unknown operator. Its runs are counted all the same: their rows report it.
    `from_signature` has the operators that are tried from their signatures.
    """
    from conformance.cases.runs import runs
    from conformance.cases.sources import from_signature, not_covered

    count = Counter(run.claim.id for run in runs(backend))
    return {
        "name": backend.name,
        "patterns": backend.patterns,
        "claims": len(backend.claims),
        "engines": list(backend.engines),
        "list": [
            {
                "id": claim.id,
                "pattern": claim.pattern,
                "dtype_config": claim.dtype_config,
                "covered": not not_covered(claim),
                "from_signature": from_signature(claim),
                "runs": count[claim.id],
            }
            for claim in backend.claims
        ],
    }
