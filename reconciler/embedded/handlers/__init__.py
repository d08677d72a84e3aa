"""Requests that the embedded broker answers, one file for each kind."""
