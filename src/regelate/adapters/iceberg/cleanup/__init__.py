"""What nothing reaches any more: reachability, quarantine, orphans, purge."""
