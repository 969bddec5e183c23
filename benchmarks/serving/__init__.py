"""Judging the latency model by measured serving rows."""
