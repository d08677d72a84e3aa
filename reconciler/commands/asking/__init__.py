"""Questions of commands to every service: whether it answers, accepts our login, and is the one that the settings
mean."""
