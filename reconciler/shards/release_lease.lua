-- Gives a lease up if the token holds it.
-- KEYS: the lease. ARGV: 1 token of the holder. Answers: 1 if the lease was given up, 0 if the token does not hold it.

local value, token = redis.call('GET', KEYS[1]), ARGV[1]
if value == token or (value and string.sub(value, 1, #token + 1) == token .. ' ') then
  return redis.call('UNLINK', KEYS[1])
end
return 0
