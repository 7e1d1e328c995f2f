"""Repairs of networks: remedies of the ledger that an audit proves, and a module of plain torch that applies them."""
