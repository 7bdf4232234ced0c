"""What is known of one job (`model.JobState`), in six parts that do not know each other.

Each is a frozen value with the rules that concern it alone: a method gives the part that follows.
The modules that coordinate parts read several and write each one through its own methods.
"""
