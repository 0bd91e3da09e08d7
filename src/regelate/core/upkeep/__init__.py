"""What may go: retention, reachability, quarantine, the ledger, manifests to rewrite."""
