-- One round of one shard, in one step. round_commands.py says why a round is a script, and how the script is sent.
--
-- KEYS: epoch, generation, pending, new, taken, offsets, covered, proofs (or offsets again if proofs may not be read);
--       half, half:1 .. half:X;  matched, matched:1 .. matched:X;  commit, commit:1 .. commit:H
-- ARGV: 1 epoch and 2 generation that the shard must have
--       3 lowest time of the round, in ms
--       4 H, older commit sets that are kept           5 X, generations of half and matched that can be kept
--       6 generations of them that are kept for the history, 0 to X
--       7 rounds whose times are kept for the history  8 members a command
--       9 rounds kept for the floor                    10 how far a round's time may be ahead of the clock, in ms
-- Answers: {'moved'}: another round ran, or Redis has another epoch; nothing was done.
--          {'wrong', key, its type, the expected type}; nothing was done.
--          the error NOPERM if the login may not run a command of a round; nothing was done.
--          {'ran', keys announced, of these new, pending before, added to pending, matched late, pending after,
--           generation, time of the round in ms, time by which keys age in ms, floor (queue and offset, a line each),
--           what proves the floor (queue and proof, a line each), first seen of the oldest key pending ('': there is
--           none), offsets (field and value, in turn)}

local epoch, generation, pending, new, taken, offsets, covered, proofs = unpack(KEYS, 1, 8)
local expected_epoch, expected_generation, lowest_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])
local commit_generations, history_generations_max = tonumber(ARGV[4]), tonumber(ARGV[5])
local history_generations, times_kept = tonumber(ARGV[6]), tonumber(ARGV[7])
local members_a_command, covered_rounds_max, ahead_ms_max = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])

-- Places of the three current sets in KEYS; the kept generations follow each of them.
local half = 9
local matched = half + history_generations_max + 1
local commit = matched + history_generations_max + 1


-- 1. The fence and the types, before anything is written.

if redis.call('GET', epoch) ~= expected_epoch or (redis.call('GET', generation) or '0') ~= expected_generation then
  return {'moved'}
end

local function first_of_another_type(first, last, expected)
  for place = first, last do
    local found = redis.call('TYPE', KEYS[place])
    if type(found) == 'table' then found = found['ok'] end
    if found ~= 'none' and found ~= expected then return {'wrong', KEYS[place], found, expected} end
  end
end
local wrong = first_of_another_type(3, 3, 'zset') or first_of_another_type(4, 4, 'set')
  or first_of_another_type(5, 8, 'hash')
  or first_of_another_type(half, half + history_generations_max, 'set')
  or first_of_another_type(matched, matched + history_generations_max, 'zset')
  or first_of_another_type(commit, commit + commit_generations, 'set')
if wrong then return wrong end

-- A login may lose the right to a command while it is used. Redis would stop the script at that command, and half a round
-- would stay: sets that have moved on without the round's note, so the history would lack their keys. Redis 7 and newer
-- are asked before. Redis 6.2 cannot be asked. The keys of a script are checked before it runs.
local function first_refused_command()
  if not redis.acl_check_cmd then return nil end
  local set, sorted_set = KEYS[half], KEYS[matched]
  for _, command in ipairs({
    {'ZRANGE', pending, 0, 0}, {'HGET', covered, 'last'}, {'ZCARD', pending}, {'SCARD', set}, {'SDIFFSTORE', new, set},
    {'ZUNIONSTORE', pending, 1, pending}, {'SSCAN', new, 0}, {'ZADD', pending, 1, 'm'},
    {'ZINTERSTORE', sorted_set, 1, pending}, {'ZDIFFSTORE', pending, 1, pending}, {'ZREM', pending, 'm'},
    {'UNLINK', new}, {'RENAME', new, set}, {'HSET', taken, 'f', 'v'}, {'HDEL', taken, 'f'}, {'HGETALL', offsets},
    {'INCRBY', generation, 1}, {'TIME'},
  }) do
    local is_answered, is_allowed = pcall(redis.acl_check_cmd, unpack(command)) -- a hosted service may not answer
    if is_answered and not is_allowed then return command[1] end
  end
end
local refused = first_refused_command()
if refused then
  return redis.error_reply("NOPERM this user has no permissions to run the '" .. refused .. "' command of a round")
end


-- 2. The time of the round. The script asks for it: a client that is paused between TIME and EXEC would give its keys a
-- wrong age.

local now = redis.call('TIME')
local clock_ms = tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000)
local at_ms = math.max(lowest_ms, clock_ms)
-- A round's time is later than that of the round before, and no earlier than that of any pending key, even if the clock
-- was set back.
local youngest_ms = tonumber(redis.call('ZRANGE', pending, -1, -1, 'WITHSCORES')[2] or 0)
-- No clock has a time above 2^53, so another program wrote such a score. Its key gets a new time in step 3.
local is_damaged = youngest_ms > 2 ^ 53
if is_damaged then youngest_ms = 0 end
local last_round_ms = string.match(redis.call('HGET', covered, 'last') or '', ' (%d+)$')
at_ms = math.max(at_ms, youngest_ms, tonumber(last_round_ms or -1) + 1)
-- Keys get the time of the round; if rounds are far ahead of the clock, the time of the clock.
if at_ms <= clock_ms + ahead_ms_max then clock_ms = at_ms end
at_ms, clock_ms = string.format('%.0f', at_ms), string.format('%.0f', clock_ms)


-- 3. pending := pending + announced keys that no commit set holds. Few new keys are added one by one.

local pending_before = redis.call('ZCARD', pending)
local announced = redis.call('SCARD', KEYS[half])
local consumed = redis.call('SCARD', KEYS[commit])
local fresh = redis.call('SDIFFSTORE', new, KEYS[half], unpack(KEYS, commit, commit + commit_generations))
local added = 0
if pending_before * 2 < fresh then
  -- Members of a plain set have the score 1, so the weight gives them the present time; MIN keeps earlier times.
  local size = redis.call('ZUNIONSTORE', pending, 2, pending, new, 'WEIGHTS', 1, clock_ms, 'AGGREGATE', 'MIN')
  added = size - pending_before
elseif fresh > 0 then
  local cursor = '0'
  repeat
    local page = redis.call('SSCAN', new, cursor, 'COUNT', members_a_command)
    cursor = page[1]
    local members = page[2]
    for first = 1, #members, members_a_command do
      local scored = {}
      for i = first, math.min(first + members_a_command - 1, #members) do
        scored[#scored + 1] = clock_ms
        scored[#scored + 1] = members[i]
      end
      added = added + redis.call('ZADD', pending, 'NX', unpack(scored))
    end
  until cursor == '0'
end

-- Keys whose time is ahead of the clock get the clock's time: a bounded number of keys per round, until none is ahead.
local pages_to_date = (clock_ms == at_ms and not is_damaged) and 0 or 10
for _ = 1, pages_to_date do
  local ages, dated = redis.call('ZRANGE', pending, -members_a_command, -1, 'WITHSCORES'), {}
  for i = 1, #ages, 2 do
    if tonumber(ages[i + 1]) > tonumber(clock_ms) then
      dated[#dated + 1] = clock_ms
      dated[#dated + 1] = ages[i]
    end
  end
  if #dated == 0 then break end
  redis.call('ZADD', pending, unpack(dated))
end


-- 4. pending := pending - consumed keys of the current commit set. The older commit sets hold no pending key:
-- (a) step 3 adds no key of any commit set. (b) The round before removed the keys of the set that was current then, and
-- pending held no key of the sets that were older then. (c) Between rounds only the current commit set grows, and only
-- rounds add to pending. (d) A Redis that falls back takes all keys of the shard back to one moment between two rounds.
-- If an operator lowers and raises commit_generations, a stale set can only cost a look-up.

local matched_late = redis.call('ZINTERSTORE', KEYS[matched], 2, pending, KEYS[commit], 'WEIGHTS', 1, 0)
if matched_late * 2 > pending_before + added then
  redis.call('ZDIFFSTORE', pending, 2, pending, KEYS[matched])
else
  for first = 0, matched_late - 1, members_a_command do
    local members = redis.call('ZRANGE', KEYS[matched], first, first + members_a_command - 1)
    redis.call('ZREM', pending, unpack(members))
  end
end


-- 5. Every set moves to the next generation. The oldest set is unlinked first, because RENAME onto a big key would free
-- that key at once and block Redis.

local function rotate(current, kept, oldest, size_command)
  for place = current + kept, oldest do redis.call('UNLINK', KEYS[place]) end
  for place = current + kept - 1, current, -1 do
    if redis.call(size_command, KEYS[place]) > 0 then redis.call('RENAME', KEYS[place], KEYS[place + 1]) end
  end
end
rotate(commit, commit_generations, commit + commit_generations, 'SCARD')
rotate(matched, history_generations, matched + history_generations_max, 'ZCARD')
rotate(half, history_generations, half + history_generations_max, 'SCARD')
redis.call('UNLINK', new)
if history_generations > 0 then
  redis.call('HSET', taken, expected_generation + 1, table.concat({at_ms, announced, consumed, matched_late}, ' '))
  redis.call('HDEL', taken, expected_generation + 1 - times_kept)
else
  redis.call('UNLINK', taken)
end


-- 6. The floor: the offsets from which announcements are read again after Redis lost everything. It has the offsets of
-- the newest round before the oldest pending key; if nothing is pending, those of this round. An unsettled key that was
-- announced below a round's offsets is pending, with a time no later than that round. (The exception is a key that was
-- settled and taken up again: its open row in the ledger is followed without Redis.) `covered` lies in the same memory
-- as `pending`. So a Redis that falls back, however often and however far, takes both back together, and nobody need
-- find out which of the ledger's rounds it has undone. A floor that was true once stays true: keys that were matched or
-- settled below it remain so.

-- A queue whose name has a line end, or whose offset is no number, has no floor, because the answer is made of lines.
local queues, lines, proved = redis.call('HGETALL', offsets), {}, {}
for i = 1, #queues, 2 do
  if string.find(queues[i], '^[^\n]*/%d+$') and string.find(queues[i + 1], '^%d+$') then
    lines[#lines + 1] = queues[i]
    lines[#lines + 1] = queues[i + 1]
    -- If another release has moved the offset, the stored proof belongs to an older offset and is left out.
    local proof = redis.call('HGET', proofs, queues[i])
    if proof and string.match(proof, '^(%d+) [^\n]*$') == queues[i + 1] then
      proved[#proved + 1] = queues[i]
      proved[#proved + 1] = proof
    end
  end
end
redis.call('HSET', covered, at_ms, table.concat(lines, '\n'))
-- The proofs of the round's offsets have a field of their own, which older releases ignore.
if #proved > 0 then redis.call('HSET', covered, 'proofs ' .. at_ms, table.concat(proved, '\n')) end
redis.call('HSET', covered, 'last', (expected_generation + 1) .. ' ' .. at_ms)

local oldest = redis.call('ZRANGE', pending, 0, 0, 'WITHSCORES')[2] or ''
local oldest_ms = tonumber(oldest)
local rounds = {}
local fields = redis.call('HGETALL', covered)
for i = 1, #fields, 2 do rounds[#rounds + 1] = tonumber(fields[i]) end
table.sort(rounds)
local base = 0
for i = 1, #rounds do
  if not oldest_ms or rounds[i] < oldest_ms then base = i end
end

local kept = {}
for i = 1, #rounds do kept[string.format('%.0f', rounds[i])] = true end
local function forget_round(i)
  local round = string.format('%.0f', rounds[i])
  redis.call('HDEL', covered, round)
  kept[round] = nil
end
for i = 1, base - 1 do forget_round(i) end
local first_kept = math.max(base, 1)
if #rounds - first_kept + 1 > covered_rounds_max then
  -- Forgets the round that leaves the smallest gap in proportion to its age, but never the floor's or the last one.
  local chosen, smallest_gap
  for i = first_kept + 1, #rounds - 1 do
    local gap = (rounds[i + 1] - rounds[i - 1]) / (tonumber(at_ms) - rounds[i - 1])
    if not smallest_gap or gap < smallest_gap then chosen, smallest_gap = i, gap end
  end
  forget_round(chosen)
end
local floor, floor_proofs = '', ''
if base > 0 then
  local round = string.format('%.0f', rounds[base])
  floor = redis.call('HGET', covered, round)
  floor_proofs = redis.call('HGET', covered, 'proofs ' .. round) or ''
end
-- An older release that forgets a round leaves its proofs here.
for i = 1, #fields, 2 do
  local round = string.match(fields[i], '^proofs (%d+)$')
  if round and not kept[round] then redis.call('HDEL', covered, fields[i]) end
end


-- 7. The generation, which is the fence, moves last.

local pending_after = redis.call('ZCARD', pending)
local next_generation = redis.call('INCRBY', generation, 1)
return {
  'ran', announced, fresh, pending_before, added, matched_late, pending_after, next_generation, at_ms, clock_ms, floor,
  floor_proofs, oldest, queues
}
