"""The one exception that hostile or broken bytes can cause anywhere below `wire`."""


class DecodeError(ValueError):
    """The bytes are not what the protocol says they must be.

    There is no answer to such a request: the connection is closed, as Apache Kafka does.
    """
