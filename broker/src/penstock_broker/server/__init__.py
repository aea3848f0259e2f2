"""The effects: sockets, the event loop, and the one place where everything is put together."""
