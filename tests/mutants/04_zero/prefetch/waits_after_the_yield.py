"""mutant: computes while not waited for"""


def prefetch(order, limit):
    flight = []
    for place, unit in enumerate(order):
        wanted = list(dict.fromkeys(order[place:]))[:limit]
        for old in flight:
            if old not in wanted:
                old.free()
        for new in wanted:
            if new not in flight:
                new.launch()
        flight = wanted
        yield unit
        unit.wait()
    for last in flight:
        last.free()
