"""/api/v1: JSON documents over the functions of the commands."""
