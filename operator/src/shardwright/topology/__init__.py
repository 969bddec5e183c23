"""Nodes and pods to NVLink islands with free shapes, and the ledger of GPU reservations. Pure."""
