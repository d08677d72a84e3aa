"""Audits: the outputs in a folder, each verified by a process of the audit, one at a time."""
