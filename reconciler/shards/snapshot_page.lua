-- Reads a page of pending, ordered by first-seen time and key.
--
-- KEYS: pending
-- ARGV: 1 score and 2 member of the last key that was read, both '' for the first page; 3 members per page
-- Answers: member, score, member, score ... of the keys behind the last key
--
-- The last key may have left, so its place is found by halving. Members are compared byte for byte, because Lua's own
-- comparison of strings follows the server's locale.

local pending, last_score, last_member, count = KEYS[1], tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])

local function is_behind(position)
  local found = redis.call('ZRANGE', pending, position, position, 'WITHSCORES')
  local member, score = found[1], tonumber(found[2])
  if score ~= last_score then return score > last_score end
  for i = 1, math.min(#member, #last_member) do
    local byte, last_byte = string.byte(member, i), string.byte(last_member, i)
    if byte ~= last_byte then return byte > last_byte end
  end
  return #member > #last_member
end

local low, high = 0, redis.call('ZCARD', pending)
if not last_score then high = 0 end
while low < high do
  local middle = math.floor((low + high) / 2)
  if is_behind(middle) then high = middle else low = middle + 1 end
end
return redis.call('ZRANGE', pending, low, low + count - 1, 'WITHSCORES')
