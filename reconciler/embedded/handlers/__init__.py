"""Handlers of the requests that the embedded broker answers, one file per kind."""
