"""The body of a round's MULTI, and what its answers mean (memory.py sends it).

The round is one script inside MULTI, its text in the command, so no Redis has to know it beforehand. A script rather
than plain commands because (1) an error stops it before anything is deleted, where MULTI would go on; (2) it compares
epoch and generation once more, so that a client which sends the MULTI again by itself moves nothing twice; (3) pending
is changed key by key instead of being rewritten, so the cost grows with what was announced and consumed since the last
round and not with what is pending.

Only the youngest commit set can hold a pending key. After a round pending holds no member of the commit sets that were
there: new keys are announced minus *all* of them, and what was pending before held none of the older ones (the same
holds for the round before, and an empty shard) and now holds none of the youngest. Between rounds only the youngest
grows, and only rounds add to pending. A Redis that falls back does so with all keys of the shard at once, to a moment
between two rounds. Should an operator lower and raise commit_generations again, a stale set costs a look-up, no more.

The floor (where announcements are read again after Redis lost everything) comes out of the same step. K:covered keeps,
beside pending, which announcement offsets each of the last rounds had covered. All that was announced below the offsets
of a round and is not settled is pending with no later time than that round's (or has been taken up again after it was
settled: then its open row in the ledger is followed without Redis): so the newest round before the oldest pending key
tells the floor. Both lie in one memory. However often Redis falls back, and to whatever earlier memory, it
takes the two along together, and nobody has to find out which rounds of the ledger it has undone. A floor that was true
once stays true: what was matched or settled below it is so for good.

Times of rounds never run backwards, but Redis' clock may: it was set back, or a node that is behind took over. Keys of
such rounds are dated by the clock, or they would not age until it has caught up; and so are those that were dated by
a clock that was ahead. Only downwards, which the floor allows: it asks that no key is dated later than its round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reconciler.contract.keyspace import (
    AHEAD_MS_MAX,
    COVERED_ROUNDS_MAX,
    HISTORY_GENERATIONS_MAX,
    TIMES_KEPT,
    ShardKeys,
)
from reconciler.contract.subscription import Shard
from reconciler.errors import InvariantViolation
from reconciler.policy.ports import RoundCounts, RoundDone
from reconciler.shards.access import translate
from reconciler.shards.values import pairs_of, text_of

#: Members a command: a longer one would need more of Lua's stack than there is (8 000 slots).
MEMBERS_A_COMMAND = 1_000

#: KEYS: epoch, generation, pending, new, taken, offsets, covered; half, half:1..x; matched, matched:1..x; commit,
#: commit:1..h. ARGV: epoch and generation that must stand, lowest time in ms, h, x, generations kept for the history,
#: times kept, chunk, rounds kept for the floor, how far rounds may be ahead of the clock. Returns a word and then:
#: "ran" announced, new, pending before, added, matched late, pending after, generation, its time in ms, the time by
#: which keys age, the floor (queue, offset, queue ..., a line each); "moved" (another round ran, or the epoch is
#: another one; nothing was done); "wrong" key, its type, the expected one.
ROUND_SCRIPT = """
local epoch, generation, pending, new, taken = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local offsets, covered = KEYS[6], KEYS[7]
local h, x, kept = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local times, chunk, covered_max, ahead_max = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
local half, matched, commit = 8, 9 + x, 10 + 2 * x

if redis.call('GET', epoch) ~= ARGV[1] or (redis.call('GET', generation) or '0') ~= ARGV[2] then
  return {'moved'}
end

local function wrong(first, last, kind)
  for k = first, last do
    local found = redis.call('TYPE', KEYS[k])
    if type(found) == 'table' then found = found['ok'] end
    if found ~= 'none' and found ~= kind then return {'wrong', KEYS[k], found, kind} end
  end
end
local damaged = wrong(3, 3, 'zset') or wrong(4, 4, 'set') or wrong(5, 7, 'hash')
  or wrong(half, half + x, 'set') or wrong(matched, matched + x, 'zset')
  or wrong(commit, commit + h, 'set')
if damaged then return damaged end

-- Whoever is stopped between asking for the time and EXEC would give its keys an age they do not have.
local now = redis.call('TIME')
local clock = tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000)
local at = math.max(tonumber(ARGV[3]), clock)
-- No key may be older than the round that finds it, nor a round than one of before, whatever the clock says.
local youngest = tonumber(redis.call('ZRANGE', pending, -1, -1, 'WITHSCORES')[2] or 0)
-- A time that no clock tells: somebody else wrote it. It is dated like that of a clock that was ahead.
local is_damaged = youngest > 2 ^ 53
if is_damaged then youngest = 0 end
local last = string.match(redis.call('HGET', covered, 'last') or '', ' (%d+)$')
at = math.max(at, youngest, tonumber(last or -1) + 1)
if at <= clock + ahead_max then clock = at end
at, clock = string.format('%.0f', at), string.format('%.0f', clock)

local before = redis.call('ZCARD', pending)
local announced = redis.call('SCARD', KEYS[half])
local consumed = redis.call('SCARD', KEYS[commit])
local fresh = redis.call('SDIFFSTORE', new, KEYS[half], unpack(KEYS, commit, commit + h))
local added = 0
if before * 2 < fresh then
  -- Members of a plain set score 1, so the weight makes it the time of now; MIN keeps older ages.
  added = redis.call('ZUNIONSTORE', pending, 2, pending, new, 'WEIGHTS', 1, clock, 'AGGREGATE', 'MIN') - before
elseif fresh > 0 then
  local cursor = '0'
  repeat
    local page = redis.call('SSCAN', new, cursor, 'COUNT', chunk)
    cursor = page[1]
    for first = 1, #page[2], chunk do
      local scored = {}
      for i = first, math.min(first + chunk - 1, #page[2]) do
        scored[#scored + 1] = clock
        scored[#scored + 1] = page[2][i]
      end
      added = added + redis.call('ZADD', pending, 'NX', unpack(scored))
    end
  until cursor == '0'
end

-- Dated by a clock that was ahead: a bounded number a round, until none is left.
for _ = 1, (clock == at and not is_damaged) and 0 or 10 do
  local ages, dated = redis.call('ZRANGE', pending, -chunk, -1, 'WITHSCORES'), {}
  for i = 1, #ages, 2 do
    if tonumber(ages[i + 1]) > tonumber(clock) then
      dated[#dated + 1] = clock
      dated[#dated + 1] = ages[i]
    end
  end
  if #dated == 0 then break end
  redis.call('ZADD', pending, unpack(dated))
end

local late = redis.call('ZINTERSTORE', KEYS[matched], 2, pending, KEYS[commit], 'WEIGHTS', 1, 0)
if late * 2 > before + added then
  redis.call('ZDIFFSTORE', pending, 2, pending, KEYS[matched])
else
  for first = 0, late - 1, chunk do
    redis.call('ZREM', pending, unpack(redis.call('ZRANGE', KEYS[matched], first, first + chunk - 1)))
  end
end

-- The oldest first: RENAME onto a big key would free it in place.
local function rotate(first, keep, last, size)
  for k = first + keep, last do redis.call('UNLINK', KEYS[k]) end
  for k = first + keep - 1, first, -1 do
    if redis.call(size, KEYS[k]) > 0 then redis.call('RENAME', KEYS[k], KEYS[k + 1]) end
  end
end
rotate(commit, h, commit + h, 'SCARD')
rotate(matched, kept, matched + x, 'ZCARD')
rotate(half, kept, half + x, 'SCARD')
redis.call('UNLINK', new)
if kept > 0 then
  redis.call('HSET', taken, ARGV[2] + 1, table.concat({at, announced, consumed, late}, ' '))
  redis.call('HDEL', taken, ARGV[2] + 1 - times)
else
  redis.call('UNLINK', taken)
end

-- The floor: what the newest round before the oldest pending key had covered, this one if nothing is pending.
-- A queue whose name holds a line end, or whose offset is no number, has no floor: the answer would be no lines.
local queues, lines = redis.call('HGETALL', offsets), {}
for i = 1, #queues, 2 do
  if string.find(queues[i], '^[^\\n]*/%d+$') and string.find(queues[i + 1], '^%d+$') then
    lines[#lines + 1] = queues[i]
    lines[#lines + 1] = queues[i + 1]
  end
end
redis.call('HSET', covered, at, table.concat(lines, '\\n'))
redis.call('HSET', covered, 'last', (ARGV[2] + 1) .. ' ' .. at)
local oldest = tonumber(redis.call('ZRANGE', pending, 0, 0, 'WITHSCORES')[2])
local rounds, base = {}, 0
local fields = redis.call('HGETALL', covered)
for i = 1, #fields, 2 do rounds[#rounds + 1] = tonumber(fields[i]) end
table.sort(rounds)
for i = 1, #rounds do
  if not oldest or rounds[i] < oldest then base = i end
end
local function forget(i) redis.call('HDEL', covered, string.format('%.0f', rounds[i])) end
for i = 1, base - 1 do forget(i) end
local first = math.max(base, 1)
if #rounds - first + 1 > covered_max then
  -- One goes that leaves the smallest hole in proportion to its age, neither the floor's nor the last.
  local chosen, smallest
  for i = first + 1, #rounds - 1 do
    local hole = (rounds[i + 1] - rounds[i - 1]) / (tonumber(at) - rounds[i - 1])
    if not smallest or hole < smallest then chosen, smallest = i, hole end
  end
  forget(chosen)
end
local floor = base > 0 and redis.call('HGET', covered, string.format('%.0f', rounds[base])) or ''

local after = redis.call('ZCARD', pending)
return {'ran', announced, fresh, before, added, late, after, redis.call('INCRBY', generation, 1), at, clock, floor}
"""


def round_commands(
    keys: ShardKeys,
    *,
    epoch: str,
    generation: int,
    not_before_ms: int,
    commit_generations: int,
    history_generations: int,
) -> list[tuple[Any, ...]]:
    """What goes between MULTI and EXEC."""
    kept = range(1, HISTORY_GENERATIONS_MAX + 1)
    names = [
        *(keys.epoch, keys.generation, keys.pending, keys.new, keys.taken, keys.offsets, keys.covered),
        *(keys.half, *(keys.half_generation(number) for number in kept)),
        *(keys.matched, *(keys.matched_generation(number) for number in kept)),
        *(keys.commit, *(keys.commit_generation(number) for number in range(1, commit_generations + 1))),
    ]
    arguments = (epoch, generation, not_before_ms, commit_generations, HISTORY_GENERATIONS_MAX, history_generations)
    bounds = (TIMES_KEPT, MEMBERS_A_COMMAND, COVERED_ROUNDS_MAX, AHEAD_MS_MAX)
    script = ("EVAL", ROUND_SCRIPT, len(names), *names, *arguments, *bounds)
    return [("HGETALL", keys.offsets), script]


def round_done(shard: Shard, *, epoch: str, generation: int, answers: Sequence[Any]) -> RoundDone | None:
    """The round that the answers tell of; None: another one had run, so this one did nothing.

    Raises InvariantViolation for a key of a wrong type, RedisAway for what passes (no memory, no permission): the
    script had stopped before it deleted anything, and the next round does all of it.
    """
    for answer in answers:
        if isinstance(answer, Exception):
            error = translate(answer)
            raise type(error)(f"{shard}: the round of generation {generation + 1} stopped: {error}") from answer
    offsets, (word, *rest) = answers
    match text_of(word):
        case "moved":
            return None
        case "wrong":
            name, found, expected = (text_of(part) for part in rest)
            raise InvariantViolation(f"{shard}: {name} is a {found}, expected a {expected}; rounds stop")
    *numbers, floor = rest
    announced, fresh, before, added, late, after, now, at_ms, clock_ms = (int(number) for number in numbers)
    if now != generation + 1 or after != before + added - late:
        raise InvariantViolation(
            f"{shard}: the fence is {now} after generation {generation}, pending went from {before} "
            f"by +{added} -{late} to {after}"
        )
    return RoundDone(
        shard=shard,
        epoch=epoch,
        generation=now,
        at_ms=at_ms,
        clock_ms=clock_ms,
        offsets={text_of(field): int(offset) for field, offset in pairs_of(offsets) if _is_number(text_of(offset))},
        floor=_floor_of(text_of(floor)),
        counts=RoundCounts(
            announced=announced,
            matched=announced - fresh,
            pending_before=before,
            pending_added=added,
            pending_matched=late,
            pending_after=after,
        ),
    )


def _floor_of(lines: str) -> dict[str, int]:
    words = lines.split("\n") if lines else []
    queues, offsets = words[::2], words[1::2]
    if len(queues) != len(offsets) or not all(map(_is_number, offsets)):
        return {}  # an older release wrote down a queue whose name holds a line end
    return {queue: int(offset) for queue, offset in zip(queues, offsets, strict=True)}


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
