"""The Kafka wire protocol without I/O: bytes in, typed messages out, and back.

Start at `apis.py` (what exists, at which versions), then `schema.py` (how a message class is
declared and compiled), `framing.py` (a stream cut into frames) and `records.py` (record batches).
"""
