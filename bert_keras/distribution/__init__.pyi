from .strategy import find_strategy as find_strategy
