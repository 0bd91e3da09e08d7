"""While it happens: who does it, slices, the proof of a rewrite, conflicts, what is committed, stats."""
