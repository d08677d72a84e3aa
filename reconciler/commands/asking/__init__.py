"""Questions of commands to every service: whether the service answers, accepts our login, and is what the settings
mean."""
