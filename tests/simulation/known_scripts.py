"""Hashes of the Lua texts that redis_data.py knows by heart; written by hand so that a changed text is noticed."""

SHA_OF_SCRIPT = {
    "admit": "0d2729591367b9bd0389fe836f5032fc4d3d71cd",
    "take lease": "a59db46ad353e8a7ccf64f751e8112dc2f76cc55",
    "round": "f7c63dca2fe62cbfb40ccd7e2646dd09ca69084d",
    "release lease": "4ba0e58926c6306cc9acfdb0b0b9958af4df74a0",
}
