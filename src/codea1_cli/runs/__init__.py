"""The run directory: its layout, what it says of a run, and what can be taken out of it."""
