"""Who may do what: persons, their roles, and how they prove who they are."""
