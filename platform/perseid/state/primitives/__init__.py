"""State that operators declare: values, tables, sets, pools, timers; and their columns and undo."""
