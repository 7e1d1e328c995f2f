"""Rows files and what is known of them: rows, diagnostics, profiles, families, the ledger. Imports no torch."""
