"""mutant: launched before the last one is freed: free first"""


def prefetch(order, limit):
    flight = []
    for place, unit in enumerate(order):
        wanted = list(dict.fromkeys(order[place:]))[:limit]
        for new in wanted:
            if new not in flight:
                new.launch()
        for old in flight:
            if old not in wanted:
                old.free()
        flight = wanted
        unit.wait()
        yield unit
    for last in flight:
        last.free()
