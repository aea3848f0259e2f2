"""How much each client may send and fetch (KIP-13, KIP-219, KIP-546)."""
