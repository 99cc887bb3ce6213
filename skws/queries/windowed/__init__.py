"""Window expressions over replays: what ``skws windows`` runs, writes and draws."""
