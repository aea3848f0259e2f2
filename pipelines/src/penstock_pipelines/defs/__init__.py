"""Instances by domain: flights, weather, the machine, and the platform that watches them."""
