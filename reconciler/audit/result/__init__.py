"""Result of an audit, as plain values: classes, counts, findings, and their JSON documents."""
