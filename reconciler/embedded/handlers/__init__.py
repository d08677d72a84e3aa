"""Handlers of the requests that the embedded broker answers. Each kind of request has one file."""
