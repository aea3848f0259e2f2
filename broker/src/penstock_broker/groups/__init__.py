"""Consumer groups: who is a member, who consumes what, and how far they came."""
