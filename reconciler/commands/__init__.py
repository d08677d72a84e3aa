"""What each command does. A module is loaded only by the command that needs it, so `--help` loads no driver."""
