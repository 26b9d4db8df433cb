"""The reference application on real input, and the proof that it did what it should."""
