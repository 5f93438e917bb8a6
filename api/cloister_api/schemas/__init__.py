"""What requests and answers look like on the wire: snake_case JSON (client contract)."""
