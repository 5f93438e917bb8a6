"""What follows changes: streams of pages, sessions that end, lists that are kept current."""
