-- What a snapshot of pending begins with, in one step: a cluster's MULTI refuses TIME, which has no key.
-- KEYS: epoch, generation. Answers: {epoch or nil, generation, seconds of TIME, microseconds of TIME}

local now = redis.call('TIME')
return {redis.call('GET', KEYS[1]) or false, redis.call('GET', KEYS[2]) or '0', now[1], now[2]}
