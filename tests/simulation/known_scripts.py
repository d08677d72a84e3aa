"""Hashes of the Lua texts that redis_data.py knows by heart; written by hand so that a changed text is noticed."""

SHA_OF_SCRIPT = {
    "admit": "992d4d9f19bdf71f0c48c8038372497a00b4d64b",
    "look": "037e81cef0e914aa2cc16835b20f8109aef27f4a",
    "take lease": "4136b839ba9d559730365b91d971c0e4180178e0",
    "round": "81357949f8b75c249512668f220e8de0cc21a884",
    "sharers": "82dac1a55ffee042cf34eed5e347a10aff221f4e",
    "release lease": "45c7e1a5b80ee37259929d33c9b26dde45c29893",
}
