-- What a shard has, read in one step: for people who look at all shards. Nothing is written.
--
-- KEYS: epoch, generation, covered, pending, the commit sets, and the other keys of the shard
-- ARGV: the type that each of them has where it is there, and the number of commit sets
-- Answers: {epoch, generation, number and time of the last round, keys pending, first seen of the oldest, members of the
--           commit sets, seconds and microseconds of TIME}; '' where there is none. Of a shard with a key of another type: {the type of each}.

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
