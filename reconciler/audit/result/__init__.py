"""What an audit says, as plain values: classes, counts, findings, and the JSON documents of them."""
