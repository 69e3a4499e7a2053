"""variant: the next gathers are launched as soon as a unit has computed"""


def window(units, limit):
    found = []
    for unit in units:
        if unit not in found:
            found.append(unit)
    return found[:limit]


def prefetch(order, limit):
    flight = window(order, limit)
    for unit in flight:
        unit.launch()
    for place, unit in enumerate(order):
        unit.wait()
        yield unit
        coming = window(order[place + 1 :], limit)
        if unit not in coming:
            unit.free()
        for new in coming:
            if new not in flight:
                new.launch()
        flight = coming
