"""Takes in training jobs and answers for them, off the event loop; what comes of them is the ledger's."""
