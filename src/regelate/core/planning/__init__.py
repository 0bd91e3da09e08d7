"""What should happen: reasons, groups, sizes to expect, the plan, health."""
