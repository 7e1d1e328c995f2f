"""Properties that hold whatever the data are."""
