-- One look at a shard and its lease. Every turn looks at all shards, to find those where a round would move something.
--
-- KEYS: epoch, generation, covered, half, pending, apart, round_lease, offsets, commit, commit:1 .. commit:H
-- ARGV: 1 token of the process 2 length of a lease, in ms 3 new value of the lease if the token holds it, or '' to keep
-- it
-- Answers: {epoch, generation, number and time of the last round, keys announced, members of the commit sets, keys
-- pending,
--           first seen of the oldest, keys apart, the lease before, seconds and microseconds of TIME,
--           offsets (field and value, in turn)};
--          '' for a missing value. A key of a wrong type is an error, and nothing was done.

local epoch, generation, covered, half, pending, apart, lease, offsets = unpack(KEYS, 1, 8)
local token, milliseconds, renewed = unpack(ARGV)

local consumed = 0
for place = 9, #KEYS do consumed = consumed + redis.call('SCARD', KEYS[place]) end
local found = {
  redis.call('GET', epoch) or '', redis.call('GET', generation) or '', redis.call('HGET', covered, 'last') or '',
  redis.call('SCARD', half), consumed, redis.call('ZCARD', pending),
  redis.call('ZRANGE', pending, 0, 0, 'WITHSCORES')[2] or '', redis.call('SCARD', apart)
}
local taken = redis.call('HGETALL', offsets)
local now = redis.call('TIME')
local holder = redis.call('GET', lease) or ''
if renewed ~= '' and (holder == token or string.sub(holder, 1, #token + 1) == token .. ' ') then
  redis.call('SET', lease, renewed, 'PX', milliseconds)
end
found[9], found[10], found[11], found[12] = holder, now[1], now[2], taken
return found
