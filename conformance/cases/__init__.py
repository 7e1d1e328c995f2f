"""From a backend config to runs: claims, operators, recipes, model sources."""
