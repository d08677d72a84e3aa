"""The witnesses and the acts: adapters that ask outboxes, inboxes and brokers, and that repair through a broker."""
