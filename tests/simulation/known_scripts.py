"""Hashes of the Lua texts that redis_data.py knows by heart; written by hand so that a changed text is noticed."""

SHA_OF_SCRIPT = {
    "admit": "0d2729591367b9bd0389fe836f5032fc4d3d71cd",
    "look": "740c8b849ae0de00d729b9fccaa94f7119bea07d",
    "take lease": "c613a55f8d8c46633be89f5275c08a5fa60d9dc3",
    "round": "b12ec9e15517e1760df38dc925a8771e0f2b9472",
    "sharers": "3841814fc8907fd67ef8b0338f35e07c804e05af",
    "release lease": "d7db41e4fc02f0ed6ca8b2fa8ac934dac5fdebec",
}
