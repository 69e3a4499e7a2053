"""mutant: computes while not in flight"""


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
        unit.wait()
        unit.free()
        yield unit
        flight = [other for other in flight if other is not unit]
    for last in flight:
        last.free()
