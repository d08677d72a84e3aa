"""Audits: the outputs in a folder. A process of the audit verifies one at a time."""
