"""Declarations, policy and derived numbers. Pure: the standard library and msgspec, no clock, no environment."""
