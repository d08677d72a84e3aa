-- Takes or renews a lease.
-- KEYS: the lease.
-- ARGV: 1 token of the new holder, 2 length of the lease in ms, 3 its new value (lease_values.py), 4 the value of a
-- lease that is over, or ''.
-- Answers: 1 if the token holds the lease now, otherwise the value of the holder.

local value, token = redis.call('GET', KEYS[1]), ARGV[1]
local is_free = not value or value == token or value == ARGV[4] or string.sub(value, 1, #token + 1) == token .. ' '
if not is_free then return value end
redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[2])
return 1
