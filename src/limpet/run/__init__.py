"""How a run goes: what it is, its tiles, their warm-up, and how well they mix meanwhile."""
