"""Many tasks, one model: bank, batcher, model thread and their asynchronous face."""
