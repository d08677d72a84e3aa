"""What people do by hand: each act is written down before it is done, and what came of it after; jobs do long ones."""
