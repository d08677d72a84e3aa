-- Reads the beginning of a snapshot of pending in one step. A cluster's MULTI would refuse TIME, because it has no key.
-- KEYS: epoch, generation. Answers: {epoch or nil, generation, seconds of TIME, microseconds of TIME}

local now = redis.call('TIME')
return {redis.call('GET', KEYS[1]) or false, redis.call('GET', KEYS[2]) or '0', now[1], now[2]}
