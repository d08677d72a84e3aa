"""What each command does. Each module is loaded by its own command, so that `--help` waits for no driver and no broker
client.
"""
