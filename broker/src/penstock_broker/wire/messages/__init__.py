"""One module per API: its key, the versions that exist here, and its two message classes.

Names are Kafka's own, in snake case. Version ranges are facts of the protocol as Apache Kafka
4.x documents them; the tests compare every one of them with an independent implementation.
"""
