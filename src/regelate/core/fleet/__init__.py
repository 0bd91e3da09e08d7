"""A fleet of tables that looks after itself: what is known of each, what may be done for it, and what is done now."""
