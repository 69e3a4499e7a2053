"""mutant: b is too much, `limit` is the most"""


def prefetch(order, limit):
    flight = []
    for place, unit in enumerate(order):
        wanted = list(dict.fromkeys(order[place:]))[:2]
        for old in flight:
            if old not in wanted:
                old.free()
        for new in wanted:
            if new not in flight:
                new.launch()
        flight = wanted
        unit.wait()
        yield unit
    for last in flight:
        last.free()
