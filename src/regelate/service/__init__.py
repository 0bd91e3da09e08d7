"""What the doors have behind them: one small object for each kind of work, joined in `build`."""
