"""Mutants drawn by lot: how many changes of the product the unit and contract tests notice."""
