"""Where a loaded model's bytes live: its mappings found, laid over, and moved page by page between tiers."""
