"""RocketMQ remoting client in pure Python: frames, records, routes, look-ups, sending, pulling, transactions."""
