"""The test tiers as `hack/test` runs them."""
