-- Reads the state of a shard in one step, for pages that show all shards. Writes nothing.
--
-- KEYS: epoch, generation, covered, pending, the commit sets, and the other keys of the shard
-- ARGV: the type that each of these keys must have if it exists, and the number of commit sets
-- Answers: {epoch, generation, number and time of the last round, keys pending, first seen of the oldest, members of
-- the
--           commit sets, seconds and microseconds of TIME}; '' for a missing value.
--          {the type of each key} if one has a wrong type.

local types, is_sound = {}, true
for place, key in ipairs(KEYS) do
  types[place] = redis.call('TYPE', key)['ok']
  is_sound = is_sound and (types[place] == 'none' or types[place] == ARGV[place])
end
if not is_sound then return {types} end

local epoch, generation, covered, pending = unpack(KEYS, 1, 4)
local consumed = 0
for place = 5, 4 + tonumber(ARGV[#ARGV]) do consumed = consumed + redis.call('SCARD', KEYS[place]) end
local now = redis.call('TIME')
return {
  redis.call('GET', epoch) or '', redis.call('GET', generation) or '', redis.call('HGET', covered, 'last') or '',
  redis.call('ZCARD', pending), redis.call('ZRANGE', pending, 0, 0, 'WITHSCORES')[2] or '', consumed, now[1], now[2]
}
