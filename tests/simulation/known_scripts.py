"""Hashes of the Lua texts that redis_data.py knows by heart; written by hand so that a changed text is noticed."""

SHA_OF_SCRIPT = {
    "admit": "522a0921e3906cb9aa30a20cf57e3dea9849311f",
    "take lease": "f12195c797d355223ec430ce891e2cd51d881163",
    "round": "970153d47251997cfcf1d6dc9462b1f41179359f",
    "release lease": "2b707108646d0a6965290fdfae896ddbbfb721b4",
}
