"""State that operators declare: values, tables, sets, pools, timers; columns and undo beneath."""
