-- Takes the mark of a message away whose effect failed, if the token holds it.
-- KEYS: the message's hash. ARGV: 1 token of the process. Answers: 1

if redis.call('HGET', KEYS[1], 'state') == ARGV[1] then redis.call('UNLINK', KEYS[1]) end
return 1
