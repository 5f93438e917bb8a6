"""Who may call the API, and how often: admin keys, API keys, organizations, rate limits."""
