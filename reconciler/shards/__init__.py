"""The shards in Redis: half sets and commit sets, the atomic round, leases, and the checks of the server."""
