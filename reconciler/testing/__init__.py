"""The ledger and the shards in memory, for tests of the policy and for the simulator."""
