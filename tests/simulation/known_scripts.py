"""Hashes of the Lua texts that redis_data.py knows by heart; written by hand so that a changed text is noticed."""

SHA_OF_SCRIPT = {
    "admit": "0d2729591367b9bd0389fe836f5032fc4d3d71cd",
    "take lease": "a59db46ad353e8a7ccf64f751e8112dc2f76cc55",
    "round": "19ee985ca0f8b568a6ab2c51a2323da4d8a0b785",
    "release lease": "4ba0e58926c6306cc9acfdb0b0b9958af4df74a0",
}
