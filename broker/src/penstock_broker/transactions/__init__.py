"""The transaction coordinator and its internal topic."""
