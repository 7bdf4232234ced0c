"""What `demo`, `bench` and the soak share: feed a job, follow it, break it, judge it."""
