"""Metrics for Prometheus: a catalogue of names, what moves them, and three pages over HTTP."""
