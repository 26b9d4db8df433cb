"""Measurements: ours and a peer, interleaved in one run, given as ratios. Never a test."""
