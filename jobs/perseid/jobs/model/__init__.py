"""What a job is: its spec and layout, the types of its columns, its files as one value."""
