"""Connections, routes, heartbeats, and single requests to brokers and name servers."""
