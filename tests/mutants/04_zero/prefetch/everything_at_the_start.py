"""mutant: everything is in flight at once"""


def prefetch(order, limit):
    units = list(dict.fromkeys(order))
    for unit in units:
        unit.launch()
    for unit in order:
        unit.wait()
        yield unit
    for unit in units:
        unit.free()
