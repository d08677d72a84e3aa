"""How notices reach people: one adapter a kind of receiver (ports.NoticeChannel). What is told when: the policy."""
