"""Collection: databases and exports become an evidence folder."""
