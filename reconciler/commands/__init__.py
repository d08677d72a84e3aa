"""What each command does. Only its own command loads a module, so `--help` loads no driver and no broker client."""
