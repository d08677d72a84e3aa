"""The HTTP API and the console. Handlers receive requests, call functions of the commands, and return documents or
pages.

Only this part and `embedded` run an event loop. Handlers are plain functions on threads.
"""
