"""Acts by hand: each act is recorded before it is done, and its result afterwards; jobs do long ones."""
