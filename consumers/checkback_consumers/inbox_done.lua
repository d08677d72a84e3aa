-- Marks a message after its effect.
-- KEYS: the message's hash. ARGV: 1 digest, 2 unique key, 3 topic, 4 how long the mark is kept, in ms. Answers: 1

redis.call('HSET', KEYS[1], 'state', 'done', 'digest', ARGV[1], 'key', ARGV[2], 'topic', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1
