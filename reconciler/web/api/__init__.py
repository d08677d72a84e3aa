"""/api/v1: JSON documents from the functions of the commands."""
