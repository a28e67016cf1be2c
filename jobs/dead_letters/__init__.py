"""Dead letters: the landed rows with an `error`. They are listed, sent to a topic, and retried."""
