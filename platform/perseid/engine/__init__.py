"""What a fragment decides, over ports: its life, and the steps of an epoch."""
