"""How much to speculate, round by round: estimates of acceptance and cost, and policies on them."""
