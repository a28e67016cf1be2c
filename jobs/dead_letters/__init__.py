"""Dead letters: the landed rows with an `error`. Listed, published to a topic, and tried again."""
