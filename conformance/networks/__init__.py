"""Public networks with random weights, which the suite quantizes as a whole and audits layer by layer."""
