"""Takes orders, sends them, and bills them."""
