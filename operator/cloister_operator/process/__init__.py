"""The life of the process: leader election, watches, dispatch of work to reconcilers."""
