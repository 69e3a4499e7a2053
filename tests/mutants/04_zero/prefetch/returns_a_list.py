"""mutant: computes while not in flight, be a generator"""


def prefetch(order, limit):
    flight, done = [], []
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
        done.append(unit)
    for last in flight:
        last.free()
    return done
