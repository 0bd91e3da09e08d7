"""Which knob wins and whether it is in range; sizes and timeouts."""
