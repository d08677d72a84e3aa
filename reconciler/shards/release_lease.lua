-- Gives a lease up if the token holds it.
-- KEYS: the lease. ARGV: 1 token of the holder. Answers: 1 given up, 0 not held by the token.

if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('UNLINK', KEYS[1]) end
return 0
