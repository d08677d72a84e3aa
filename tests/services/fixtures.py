"""Fixtures for the services; loaded by tests/conftest.py."""

from __future__ import annotations
