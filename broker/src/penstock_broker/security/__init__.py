"""Authentication and authorization: credentials, SASL mechanisms, ACLs."""
