-- Takes or renews a lease.
-- KEYS: the lease. ARGV: 1 token of the holder, 2 its length in ms. Answers: 1 held by the token, 0 by another one.

local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
