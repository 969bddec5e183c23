"""Clients: who learns late which pods serve, and sends requests whether or not they are answered."""
