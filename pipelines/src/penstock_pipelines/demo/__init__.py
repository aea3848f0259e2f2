"""The demo: real rows from real producers (sources, producers), and the play around them."""
