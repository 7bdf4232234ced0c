"""Where jobs come from: folders, git, the starter job."""
