"""What each command does. Each module is loaded by its command: `--help` waits for no driver and no broker client."""
