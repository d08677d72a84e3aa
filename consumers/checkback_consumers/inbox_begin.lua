-- Marks a message before its effect, unless it was applied or another process holds it.
--
-- KEYS: the message's hash
-- ARGV: 1 token of the process, 2 its lease in ms, 3 digest, 4 unique key, 5 topic
-- Answers: {'mine'}; {'busy'}; {'done', digest, unique key, topic}

local message, token = KEYS[1], ARGV[1]
local state = redis.call('HGET', message, 'state')
if state == 'done' then
  local digest, unique_key = redis.call('HGET', message, 'digest'), redis.call('HGET', message, 'key')
  return {'done', digest, unique_key, redis.call('HGET', message, 'topic')}
end
if state and state ~= token then return {'busy'} end
redis.call('HSET', message, 'state', token, 'digest', ARGV[3], 'key', ARGV[4], 'topic', ARGV[5])
redis.call('PEXPIRE', message, ARGV[2])
return {'mine'}
