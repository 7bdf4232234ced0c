"""All that runs on Spark or looks into it: sessions, plans, Python workers, the streaming query."""
