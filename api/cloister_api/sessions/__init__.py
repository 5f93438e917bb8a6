"""Who is signed in to the dashboard."""
