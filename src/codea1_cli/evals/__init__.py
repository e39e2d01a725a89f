"""Figures of merit: pass@k, suites against wrong candidates."""
