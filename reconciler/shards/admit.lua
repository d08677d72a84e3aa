-- Adds announced keys and moves the offset of the queue that brought them, or does neither.
--
-- KEYS: half, offsets, apart if keys are set apart, proofs if a proof is stored
-- ARGV: 1 field of offsets, 2 offset expected there or 'none', 3 next offset
--       4 number of members that are set apart: the first ones, 5 size of `apart` from which nothing more is set apart
--       6 proof of the next offset, or '' to store none
--       7 field of the trail in proofs, 8 the trail, or '' to keep the stored one
--       9 .. members
-- Answers: {1, next offset}; {0, the stored offset or 'none'} if another consumer has moved the offset: nothing was
-- done.
--
-- Commands that can fail on a key of a wrong type come before the offset moves.

local half, offsets = KEYS[1], KEYS[2]
local queue, expected_offset, next_offset = ARGV[1], ARGV[2], ARGV[3]
local apart_count, apart_max = tonumber(ARGV[4]), tonumber(ARGV[5])
local proof, trail_field, trail = ARGV[6], ARGV[7], ARGV[8]
local apart = apart_count > 0 and KEYS[3] or nil
local proofs = proof ~= '' and KEYS[#KEYS] or nil

local stored_offset = redis.call('HGET', offsets, queue) or 'none'
if stored_offset ~= expected_offset then return {0, stored_offset} end

-- unpack() is limited to some 8 000 values.
local function add_members(key, last)
  for first = 9, last, 1000 do
    redis.call('SADD', key, unpack(ARGV, first, math.min(first + 999, last)))
  end
end
add_members(half, #ARGV)
if apart and redis.call('SCARD', apart) < apart_max then add_members(apart, apart_count + 8) end

if proofs then
  redis.call('HSET', proofs, queue, proof)
  if trail ~= '' then redis.call('HSET', proofs, trail_field, trail) end
end
redis.call('HSET', offsets, queue, next_offset)
return {1, next_offset}
