"""All that runs on Spark or inspects it: sessions, plans, Python workers, the streaming query."""
