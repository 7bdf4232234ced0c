"""From which epoch a fragment resumes, and its partitions' state from log or checkpoint."""
