"""`claims`: the claims of backend configs; `lint`: mistakes of a declaration, found without running a kernel."""

import argparse
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from .arguments import add_backend_config, add_command, add_operators, add_repeatable, print_lines

if TYPE_CHECKING:
    from conformance.cases.claims import BackendClaims

    from .arguments import Commands


def add(commands: "Commands") -> None:
    claims = add_command(commands, "claims", claims_command, "list the claims of backend configs")
    source = claims.add_mutually_exclusive_group()
    add_repeatable(source, "--backend", "NAME", "list the claims of this backend")
    add_backend_config(source, "list the claims of this BackendConfig, or of the one that this callable returns")
    add_operators(claims)
    form = claims.add_mutually_exclusive_group()
    form.add_argument(
        "--json", action="store_true", help="print JSON with the engines of each backend and the runs of each claim"
    )
    form.add_argument("--runs", action="store_true", help="print the runs of each claim, a line for each profile")
    lint = add_command(commands, "lint", lint_command, "find mistakes of a BackendConfig without running a kernel")
    lint.add_argument(
        "declaration",
        metavar="MODULE:ATTRIBUTE",
        nargs="*",
        help="a BackendConfig, a list of BackendPatternConfigs, or a callable that returns one (default: the backends' own)",
    )
    lint.add_argument("--rules", action="store_true", help="print every rule with its reason and an example")


def claims_command(arguments: argparse.Namespace) -> int:
    from conformance.cases.claims import backend, third_party
    from conformance.cases.variants import from_signature
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

        return print_lines(line for claims in backends for line in lines(claims))
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
    from conformance.cases.variants import from_signature, not_covered

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


def lint_command(arguments: argparse.Namespace) -> int:
    from conformance.cases.claims import backend
    from conformance.configs.registry import BACKENDS
    from conformance.lint import linter

    if arguments.rules:
        return print_lines(linter.described())
    if arguments.declaration:
        declarations = [linter.named(path) for path in arguments.declaration]
    else:
        declarations = [linter.declared(name, backend(name).config.configs) for name in BACKENDS]
    failed = False
    for declaration in declarations:
        problems = linter.lint(declaration)
        for problem in problems:
            print(f"{declaration.name}: {problem.rule.level} {problem.rule.id}: {problem.where}: {problem.text}")
        errors = sum(problem.rule.level == "error" for problem in problems)
        print(
            f"{declaration.name}: {len(declaration.entries)} entries, {errors} errors, {len(problems) - errors} warnings"
        )
        failed |= errors > 0
    return int(failed)
