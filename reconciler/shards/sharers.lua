-- Enters a process among the sharers of an environment, or renews its entry. Removes entries that are over.
-- KEYS: sharers. ARGV: 1 token of the process 2 length of its entry, in ms 3 digest of the subscriptions that it shares
-- Answers: token and digest of each sharer, in turn.
--
-- An entry that ends later than its length allows is over, too, because the clock was set back since it was written.

local sharers = KEYS[1]
local token, milliseconds, digest = unpack(ARGV)
local now = redis.call('TIME')
local now_ms = now[1] * 1000 + math.floor(now[2] / 1000)

redis.call('HSET', sharers, token, string.format('%.0f %s %s', now_ms + milliseconds, milliseconds, digest))
redis.call('PEXPIRE', sharers, milliseconds)
local found = {}
local entries = redis.call('HGETALL', sharers)
for place = 1, #entries, 2 do
  local until_ms, length_ms, shared = string.match(entries[place + 1], '^(%d+) (%d+) (%x+)$')
  local left_ms = (tonumber(until_ms) or 0) - now_ms
  if left_ms > 0 and left_ms <= tonumber(length_ms) then
    found[#found + 1] = entries[place]
    found[#found + 1] = shared
  else
    redis.call('HDEL', sharers, entries[place])
  end
end
return found
